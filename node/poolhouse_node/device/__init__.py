"""A device in a room: links in, messages out."""
