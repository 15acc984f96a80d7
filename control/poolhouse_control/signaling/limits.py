"""What one client, one destination and the whole server may use."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["MAX_PEER_ID_CHARS", "MAX_TOKEN_CHARS", "Limits"]

MAX_PEER_ID_CHARS = 128
"""Signaling, 1.3: the id rule of clients has no length; a server needs one."""

MAX_TOKEN_CHARS = 1024
"""Long enough for a signed token that an app brings. Only a digest of it is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Bounds and times of the signaling server. Times are seconds."""

    max_peers: int = 5000
    """Registered ids. A take-over of one's own id is exempt (signaling, 2)."""

    expire_after_s: float = 5.0
    """Age of a queue for an absent id, from its first message, at which its senders hear of it."""

    alive_timeout_s: float = 120.0
    """Silence after which a socket is cut. Hidden tabs beat once a minute (signaling, 5.2)."""

    max_bad_frames: int = 5
    """Frames that are not JSON objects before the socket is closed with 1008."""

    max_queued_per_peer: int = 32
    """Messages that wait for one absent id."""

    max_queued_bytes_per_peer: int = 256 * 1024
    max_queued_per_sender: int = 128
    """Messages of one sender that wait for anybody: a host that redials a room of guests
    with offer and candidates must fit."""

    max_queued: int = 20_000
    """Messages that wait in all."""

    max_queued_bytes: int = 64 * 1024 * 1024
    max_outbox_messages: int = 512
    """Messages that wait to be written to one socket. One wave of offers from a full room
    reaches a host within one turn of the loop, before its writer runs."""

    max_outbox_bytes: int = 1024 * 1024
    close_grace_s: float = 5.0
    """Time for a client to finish the closing handshake before its connection is cut."""
