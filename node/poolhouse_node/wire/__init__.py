"""Bytes to values and back: everything two devices agree on, without I/O.

Nothing here opens a socket, reads a clock or draws chance: the time is an argument, and what must
be sent is returned or handed to a small protocol that the caller implements.
"""
