"""Which blocks are free, and how many hold each of the others. Numbers only, no tensors.

A block is free (nobody holds it) or held by one or more block tables. Attention on a CPU is
fastest over rows that lie side by side, so whoever takes a block can say where: right after
another one, at the start of a wide gap, or out of the way of those that grow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["TRASH_BLOCK", "BlockLedger"]

TRASH_BLOCK = 0
"""Never given out: padding of frames of a fixed width is written there."""


class BlockLedger:
    """Reference counts of blocks ``1 .. size - 1``."""

    __slots__ = ("_references",)

    def __init__(self, size: int) -> None:
        self._references = [1] + [0] * (size - 1)

    @property
    def size(self) -> int:
        """Blocks there is memory for, the trash block among them."""
        return len(self._references)

    @property
    def free(self) -> int:
        """Blocks nobody holds."""
        return self._references.count(0)

    def references(self, block: int) -> int:
        """How many hold ``block``."""
        return self._references[block]

    def is_free(self, block: int) -> bool:
        """False as well for a block there is no memory for yet."""
        return block < self.size and not self._references[block]

    def grow(self, size: int) -> None:
        """Add free blocks up to ``size``."""
        self._references.extend([0] * (size - self.size))

    def take(self, block: int) -> int:
        """Hold a free block."""
        if not self.is_free(block):
            raise ValueError(f"block {block} is not free")
        self._references[block] = 1
        return block

    def share(self, blocks: Iterable[int]) -> None:
        """Hold blocks that others hold as well."""
        for block in blocks:
            self._require_held(block)
            self._references[block] += 1

    def release(self, blocks: Iterable[int]) -> None:
        """Let go of blocks; those nobody else holds are free."""
        for block in blocks:
            self._require_held(block)
            self._references[block] -= 1

    def hand_over(self, block: int, copy: int, holders: int) -> None:
        """Let ``holders`` of ``block`` hold its ``copy``, which was just taken, instead."""
        self._references[block] -= holders
        self._references[copy] = holders

    def gap_start(self) -> int | None:
        """Where a new run finds most room to grow: in the middle of the widest gap.

        At its start when nothing lies before it.
        """
        gaps = list(self._gaps())
        if not gaps:
            return None
        start, end = max(gaps, key=lambda gap: gap[1] - gap[0])
        return start if start == TRASH_BLOCK + 1 else start + (end - start) // 2

    def spare(self) -> int | None:
        """The last free block: out of the way of runs, which grow upwards."""
        for block in range(self.size - 1, TRASH_BLOCK, -1):
            if not self._references[block]:
                return block
        return None

    def _gaps(self) -> Iterator[tuple[int, int]]:
        start = None
        for block, held in enumerate([*self._references, 1]):
            if held and start is not None:
                yield start, block
                start = None
            elif not held and start is None:
                start = block

    def _require_held(self, block: int) -> None:
        if block == TRASH_BLOCK or not self._references[block]:
            raise ValueError(f"nobody holds block {block}")
