"""``poolhouse turn``: the relay's file, a proof that it relays, a new secret."""
