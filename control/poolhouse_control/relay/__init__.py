"""Short-lived credentials for a TURN relay, at ``POST /api/turn``."""
