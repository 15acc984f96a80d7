"""Cutting a prompt into rounds (generation, section 4; decision 11)."""

from __future__ import annotations

__all__ = ["ROUNDS_IN_FLIGHT", "plan_rounds"]

FRAME_COLUMNS_MAX = 16
WIDTHS = (16, 8, 4)
ROUNDS_IN_FLIGHT = 6


def plan_rounds(token_count: int) -> list[int]:
    """Columns of each frame, the last one being the tail that feeds the head.

    The last id never takes part in a full round, so the tail holds one to four ids. No tokens, no
    frames.
    """
    if token_count < 1:
        return []
    rounds: list[int] = []
    before_last = token_count - 1
    for width in WIDTHS:
        while before_last >= width:
            chunks = max(1, min(FRAME_COLUMNS_MAX // width, before_last // width))
            rounds.append(chunks * width)
            before_last -= chunks * width
    return [*rounds, before_last + 1]
