"""Model files: what there is, where they are, how they come here, what is in them."""
