"""At which replica ids were last found. Time is passed in."""

from __future__ import annotations

from collections import OrderedDict

__all__ = ["Places"]


class Places:
    """A bounded memory that forgets: what is wrong in it costs one more hop, not a message."""

    def __init__(self, *, max_ids: int = 10_000, life_s: float = 30.0) -> None:
        self._max_ids = max_ids
        self._life_s = life_s
        self._places: OrderedDict[str, tuple[str, float]] = OrderedDict()

    def get(self, peer_id: str, now: float) -> str:
        """Return the replica, empty if it is not known."""
        replica, until = self._places.get(peer_id, ("", 0.0))
        if replica and now >= until:
            self.drop(peer_id)
            return ""
        return replica

    def put(self, peer_id: str, replica: str, now: float) -> None:
        """Remember."""
        self._places[peer_id] = (replica, now + self._life_s)
        self._places.move_to_end(peer_id)
        if len(self._places) > self._max_ids:
            self._places.popitem(last=False)

    def drop(self, peer_id: str) -> None:
        """Forget."""
        self._places.pop(peer_id, None)
