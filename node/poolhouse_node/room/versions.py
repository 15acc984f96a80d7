"""Which of two devices is older, and what to tell either person (joining, section 2)."""

from __future__ import annotations

__all__ = ["PROTOCOL", "advice_for_them", "advice_for_us"]

PROTOCOL = 4
"""The room protocol that this package speaks."""


def advice_for_us(theirs: int | None) -> str:
    """A sentence for this side's person about a device on another version."""
    match _compare(theirs):
        case "older":
            return (
                f"A device speaks room protocol {theirs}, this one speaks {PROTOCOL}: "
                "it has to be updated before it can share a room with us."
            )
        case "newer":
            return (
                f"A device speaks room protocol {theirs}, this one speaks {PROTOCOL}: "
                "update poolhouse here, then join again."
            )
        case _:
            return (
                "A device does not say which room protocol it speaks: update both, then join again."
            )


def advice_for_them(theirs: int | None) -> str:
    """The same advice, worded for the other side's person."""
    match _compare(theirs):
        case "older":
            return (
                f"This room speaks protocol {PROTOCOL} and your device {theirs}: "
                "reload or update it, then join again."
            )
        case "newer":
            return (
                f"This room speaks protocol {PROTOCOL} and your device {theirs}: "
                "ask the host to update, then join again."
            )
        case _:
            return f"This room speaks protocol {PROTOCOL}: reload both sides, then join again."


def _compare(theirs: int | None) -> str:
    if theirs is None or theirs < 0:
        return "unknown"
    return "older" if theirs < PROTOCOL else "newer"
