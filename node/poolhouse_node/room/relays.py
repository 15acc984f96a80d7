"""Rules of relays: who asks for one, how long it is good, what may cross it (relay, 1, 3 and 4)."""

from __future__ import annotations

import ipaddress
import math
from typing import Final

__all__ = [
    "DEFAULT_LIFE_S",
    "LONGEST_LIFE_S",
    "asks_default_relay",
    "credential_life_s",
    "first_retry_after_s",
    "is_reusable",
    "refresh_after_s",
    "retry_after_s",
    "weights_may_cross",
]

DEFAULT_LIFE_S: Final = 3600.0
LONGEST_LIFE_S: Final = 86_400.0
"""No service gives longer ones; what says more is asked again after this."""
_FIRST_RETRY_S: Final = 15.0
_DOUBLINGS_MOST: Final = 16
_SOONEST_REFRESH_S: Final = 60.0


def asks_default_relay(
    host: str, *, own_relay: bool, relay_wanted: bool = True, asked_for: bool | None = None
) -> bool:
    """Does a device that meets others through ``host`` ask there for a relay (relay, 1)?

    A relay of one's own wins. Whoever meets on this machine needs none. ``asked_for`` overrules
    the latter with True, and switches asking off with False.
    """
    if own_relay or not relay_wanted or asked_for is False:
        return False
    return asked_for is True or not _is_this_machine(host)


def _is_this_machine(host: str) -> bool:
    host = host.strip("[]").lower()
    if host in {"", "localhost"} or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def credential_life_s(ttl: object) -> float:
    """The life that an answer states; an hour when it states none that is one (relay, 3)."""
    if isinstance(ttl, bool) or not isinstance(ttl, int | float) or not ttl > 0:
        return DEFAULT_LIFE_S
    return float(min(ttl, LONGEST_LIFE_S)) if math.isfinite(ttl) else DEFAULT_LIFE_S


def is_reusable(age_s: float, life_s: float) -> bool:
    """May a later join use credentials of this age, instead of asking again?"""
    return 0 <= age_s < life_s / 2


def refresh_after_s(life_s: float, age_s: float = 0.0) -> float:
    """Wait before new credentials are asked for: until three quarters of their life."""
    return max(_SOONEST_REFRESH_S, life_s * 3 / 4 - age_s)


def retry_after_s(life_s: float) -> float:
    """Wait after a refresh that failed: as if the life were a quarter as long."""
    return refresh_after_s(life_s / 4)


def first_retry_after_s(tries: int) -> float:
    """Wait after ``tries`` in a row that never brought a relay: short, then doubled.

    The first may have come while the control plane was busy or starting.
    """
    longest_s = retry_after_s(DEFAULT_LIFE_S)
    return min(_FIRST_RETRY_S * 2.0 ** min(tries - 1, _DOUBLINGS_MOST), longest_s)


def weights_may_cross(relayed: bool | None, *, relay_configured: bool) -> bool:
    """May weights cross a link? A relay's bandwidth is not ours to spend on them (relay, 4).

    ``relayed`` is None before a path is selected: then it could be the relay's, if there is one.
    """
    return not relay_configured if relayed is None else not relayed
