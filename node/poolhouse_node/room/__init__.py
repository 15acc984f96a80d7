"""Decisions of a room: no sockets, no clock of its own, no torch."""
