"""When to stop looking for own addresses. No I/O.

Descriptions go out whole, so one server that does not answer would hold everything up: the engine
asks it for longer than the other side waits for our answer (relay, section 6).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from poolhouse_node.rtc.peer import GATHERING_TIMEOUT_S

if TYPE_CHECKING:
    from poolhouse_node.rtc.peer import IceSettings

__all__ = ["is_gathered_enough"]

_ALL_KINDS_S: Final = 3.0
"""By then every server that works has answered, also over TCP and TLS."""
_ANY_S: Final = 5.0
"""A relay that is slower than this counts as down: a direct path may do."""


def is_gathered_enough(sdp: str, waited_s: float, ice: IceSettings) -> bool:
    """Go on with the candidates in ``sdp``, although the search has not ended?"""
    if waited_s >= GATHERING_TIMEOUT_S:
        return True
    if "a=candidate:" not in sdp:
        return False
    lacks_relay = bool(ice.turn) and " typ relay" not in sdp
    return waited_s >= (_ANY_S if lacks_relay else _ALL_KINDS_S)
