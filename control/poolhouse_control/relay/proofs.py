"""What a caller shows of itself: an API token, or a live signaling registration."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["ApiTokens", "Registrations"]


class Registrations(Protocol):
    """Whoever knows which peers are registered now."""

    async def holds(self, peer_id: str, token: str) -> bool:
        """Tell whether ``peer_id`` is registered, on any replica, with exactly this token."""
        ...


class ApiTokens:
    """The tokens of programs. Looked up by digest, so that time tells nothing of a token."""

    def __init__(self, tokens: Iterable[str]) -> None:
        self._digests = frozenset(_digest(token) for token in tokens)

    def allow(self, authorization: str | None) -> bool:
        """Check an ``Authorization`` header."""
        scheme, _, token = (authorization or "").partition(" ")
        if not self._digests or scheme.lower() != "bearer":
            return False
        return _digest(token.strip()) in self._digests


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogatepass")).digest()
