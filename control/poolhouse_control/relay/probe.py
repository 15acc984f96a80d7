"""Is a relay there? One STUN binding request over UDP, and what counts as its answer.

The messages are made and read without I/O; ``probe`` is the little that needs a socket.
"""

from __future__ import annotations

import asyncio
import os
import struct
from typing import Any, Final

__all__ = ["binding_request", "is_binding_answer", "probe"]

_HEADER: Final = struct.Struct("!HHI12s")
_MAGIC_COOKIE: Final = 0x2112A442
_BINDING: Final = 0x0001
_BINDING_ANSWERS: Final = frozenset({0x0101, 0x0111})
_RESEND_AFTER_S: Final = 0.5
_ID_BYTES: Final = 12


def binding_request(transaction: bytes) -> bytes:
    """A request of 20 bytes. ``transaction`` is 12 random bytes."""
    return _HEADER.pack(_BINDING, 0, _MAGIC_COOKIE, transaction)


def is_binding_answer(data: bytes, transaction: bytes) -> bool:
    """Tell whether ``data`` answers the request: success or error, somebody is there."""
    if len(data) < _HEADER.size:
        return False
    kind, size_bytes, cookie, answered = _HEADER.unpack_from(data)
    whole = size_bytes == len(data) - _HEADER.size
    return (
        kind in _BINDING_ANSWERS and whole and cookie == _MAGIC_COOKIE and answered == transaction
    )


async def probe(host: str, port: int, *, timeout_s: float = 2.0) -> bool:
    """Ask a relay for a sign of life. False too when its name cannot be looked up."""
    transaction = os.urandom(_ID_BYTES)
    try:
        async with asyncio.timeout(timeout_s):
            transport, listener = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Listener(transaction), remote_addr=(host, port)
            )
            try:
                await _ask(transport, listener)
            finally:
                transport.close()
    except (OSError, UnicodeError, TimeoutError):
        return False
    return True


class _Listener(asyncio.DatagramProtocol):
    def __init__(self, transaction: bytes) -> None:
        self.transaction = transaction
        self.answered = asyncio.Event()

    def datagram_received(self, data: bytes, _address: Any) -> None:
        """Take an answer."""
        if is_binding_answer(data, self.transaction):
            self.answered.set()


async def _ask(transport: asyncio.DatagramTransport, listener: _Listener) -> None:
    """Ask until answered: a datagram may get lost. The caller has the deadline."""
    while not listener.answered.is_set():
        transport.sendto(binding_request(listener.transaction))
        try:
            async with asyncio.timeout(_RESEND_AFTER_S):
                await listener.answered.wait()
        except TimeoutError:
            continue
