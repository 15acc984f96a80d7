"""Rules of links: why one failed, when to try again."""

from __future__ import annotations

from typing import Final, Literal

__all__ = [
    "MAX_STRIPE_TRIES",
    "JoinStep",
    "LinkFailed",
    "LinkFailure",
    "join_step",
    "no_path_sentence",
    "reconnect_delay_s",
    "stripe_redial_delay_s",
]

type LinkFailure = Literal["no-such-peer", "no-path", "timeout", "signaling", "closed"]
type JoinStep = Literal[
    "quiet", "still-connecting", "found-looking-for-path", "fail-no-path", "fail-no-room"
]

MAX_STRIPE_TRIES: Final = 4

_QUIET_S = 5.0
_FAIL_S = 15.0
_CHECKING_S = 40.0
_RECONNECT_S = (2.0, 4.0, 8.0, 16.0, 30.0)
_STRIPE_REDIAL_S = 2.0


class LinkFailed(Exception):
    """A link could not be opened. ``kind`` says why, the text is a sentence for a person."""

    def __init__(self, kind: LinkFailure, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: LinkFailure = kind


def join_step(elapsed_s: float, ice: str | None, *, answered: bool = False) -> JoinStep:
    """What a dial has come to (relay, section 6): to show, or to fail with.

    ``ice`` is the state of the search for a path, ``answered`` whether the other end's
    description has come: then it exists, whatever else is wrong.
    """
    if elapsed_s < _QUIET_S:
        return "quiet"
    if elapsed_s < _FAIL_S:
        return "still-connecting"
    if ice == "checking":
        return "found-looking-for-path" if elapsed_s < _CHECKING_S else "fail-no-path"
    if ice in ("failed", "disconnected") or answered:
        return "fail-no-path"
    return "fail-no-room"


def no_path_sentence(*, relay: bool, udp_blocked: bool | None = None) -> str:
    """What to say when the other device exists and no path to it was found (relay, section 6)."""
    if relay:
        return (
            "The other device is there, but not even the relay led to it: check the relay's "
            "address and password, or try another network."
        )
    if udp_blocked:
        return (
            "This network blocks UDP and no relay is set: add one, or use another network, "
            "such as a phone hotspot."
        )
    return (
        "The other device is there, but the two cannot reach each other: add a relay, "
        "join the same local network, or try another one."
    )


def reconnect_delay_s(attempt: int) -> float:
    """Wait before attempt 0, 1, 2, .. to reach a lost signaling server (liveness, section 12)."""
    return _RECONNECT_S[min(attempt, len(_RECONNECT_S) - 1)]


def stripe_redial_delay_s(tries: int) -> float | None:
    """Wait before a stripe is dialed again after ``tries`` failures; None to give up (wire, 1)."""
    return _STRIPE_REDIAL_S * (tries + 1) if tries < MAX_STRIPE_TRIES else None
