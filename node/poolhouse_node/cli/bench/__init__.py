"""``poolhouse bench``: the promised figures, each against its floor in the same run."""
