"""PeerJS-compatible signaling: devices find each other here, then talk directly.

``messages``, ``hub``, ``commands``, ``tally`` and ``limits`` are pure; ``presence`` says what a
store of owners must do; ``switchboard``, ``socket`` and ``routes`` do the I/O.
"""
