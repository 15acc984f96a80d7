"""How things are named in Redis. Braces are hash tags: what one script touches is in one slot."""

from __future__ import annotations

__all__ = ["Keys"]


class Keys:
    """Names under one prefix: two installations may share a server."""

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def owner(self, peer_id: str) -> str:
        """Record of who owns an id: ``r`` replica, ``t`` token digest, ``e`` epoch."""
        return f"{self._prefix}:{{{peer_id}}}:own"

    def of_id(self, peer_id: str) -> tuple[str, str, str]:
        """Owner record, queue, and facts of the queue."""
        return self.owner(peer_id), *self.queue(peer_id)

    def queue(self, peer_id: str) -> tuple[str, str]:
        """Messages that wait for an id, and their number and size."""
        return f"{self._prefix}:{{{peer_id}}}:q", f"{self._prefix}:{{{peer_id}}}:qf"

    def lease(self, replica: str) -> str:
        """A sign of life."""
        return f"{self._prefix}:{{lease}}:{replica}"

    @property
    def replicas(self) -> str:
        """Replicas whose ids are all in the store."""
        return f"{self._prefix}:{{lease}}:all"

    @property
    def birth(self) -> str:
        """Since when the store remembers."""
        return f"{self._prefix}:{{lease}}:birth"
