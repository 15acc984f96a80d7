"""Random weights made where they are used, from a seed: dense ones and packed ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.engine.layers.experts import ExpertBank
from poolhouse_node.engine.layers.feed_forward import (
    DenseFeedForward,
    ExpertFeedForward,
    SharedExpert,
)
from poolhouse_node.engine.layers.linear import DenseMatrix

if TYPE_CHECKING:
    from torch import Tensor

    from poolhouse_node.engine.kernels.packing import PackedWeight
    from poolhouse_node.engine.layers.feed_forward import FeedForward
    from poolhouse_node.engine.layers.linear import Matrix

__all__ = ["DenseWeights", "KernelWeights", "WeightMaker"]

_LEVELS_SPREAD = {"q4_0": 4.6, "q4_1": 4.6, "q8_0": 74.0}
"""Standard deviation of the levels of each type."""


class WeightMaker(Protocol):
    """Makes the parts of a model. Values keep the size of what they multiply."""

    def vector(self, size: int, mean: float = 0.0, spread: float = 1.0) -> Tensor:
        """Float32 [size]."""
        ...

    def matrix(self, rows: int, columns: int) -> Matrix:
        """Rows by columns."""
        ...

    def experts(self, count: int, used: int, width: int, ffn_width: int) -> FeedForward:
        """A mixture with a shared expert of the same width."""
        ...


class DenseWeights:
    """Float32, for devices without kernels."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._device = device
        self._random = torch.Generator(device).manual_seed(seed)

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._random, device=self._device)

    def vector(self, size: int, mean: float = 0.0, spread: float = 1.0) -> Tensor:
        return mean + spread * self._normal(size)

    def matrix(self, rows: int, columns: int) -> Matrix:
        return DenseMatrix(self._normal(rows, columns) / columns**0.5)

    def experts(self, count: int, used: int, width: int, ffn_width: int) -> FeedForward:
        gate, up = (self._normal(count, ffn_width, width) / width**0.5 for _ in range(2))
        down = self._normal(count, width, ffn_width) / ffn_width**0.5
        shared = DenseFeedForward(self.matrix(2 * ffn_width, width), self.matrix(width, ffn_width))
        return ExpertFeedForward(
            router=self.matrix(count, width),
            experts=ExpertBank.of_matrices(gate, up, down),
            shared=SharedExpert(self.vector(width, spread=width**-0.5), shared),
            used=used,
            normalised=True,
        )


class KernelWeights:
    """As the CUDA kernels take them: packed, or bfloat16."""

    def __init__(self, seed: int, device: torch.device, quant: str) -> None:
        self._device = device
        self._random = torch.Generator(device).manual_seed(seed)
        self._quant = quant

    def _normal(self, *shape: int) -> Tensor:
        return torch.randn(*shape, generator=self._random, device=self._device)

    def vector(self, size: int, mean: float = 0.0, spread: float = 1.0) -> Tensor:
        return mean + spread * self._normal(size)

    def matrix(self, rows: int, columns: int, quant: str | None = None) -> Matrix:
        from poolhouse_node.engine.kernels.matrices import HalfMatrix, PackedMatrix

        quant = quant or self._quant
        if quant == "bf16":
            spread = columns**-0.5
            weight = torch.empty(rows, columns, dtype=torch.bfloat16, device=self._device)
            return HalfMatrix(weight.normal_(0, spread, generator=self._random))
        return PackedMatrix(self._packed(rows, columns, quant))

    def experts(self, count: int, used: int, width: int, ffn_width: int) -> FeedForward:
        from poolhouse_node.engine.kernels.matrices import PackedMatrix
        from poolhouse_node.engine.kernels.moe import PackedExperts

        if self._quant == "bf16":
            raise CommandFailed("Experts are computed from packed weights only: --quant q4_0.")
        stacked = count + 1  # the shared one last
        return PackedExperts(
            router=self._normal(stacked, width) / width**0.5,
            gate_up=PackedMatrix(self._packed(stacked * 2 * ffn_width, width, self._quant)),
            down=PackedMatrix(self._packed(stacked * width, ffn_width, self._quant)),
            experts=count,
            used=used,
            shared=True,
            normalised=True,
        )

    def _packed(self, rows: int, columns: int, quant: str) -> PackedWeight:
        """Random levels straight in the packed order: any arrangement of noise is noise."""
        from poolhouse_node.engine.kernels.packing import BLOCK, ROWS, RUNS, PackedWeight

        halves = 1 if quant == "q8_0" else 2
        tiles, steps = -(-rows // ROWS), -(-columns // (RUNS * BLOCK * halves))
        quants = torch.randint(
            -128,
            128,
            (tiles, steps, RUNS, ROWS, BLOCK),
            dtype=torch.int8,
            generator=self._random,
            device=self._device,
        )
        shape = (tiles, steps, halves, RUNS, ROWS)
        scales = torch.rand(shape, generator=self._random, device=self._device) + 0.5
        scales = (scales / (_LEVELS_SPREAD[quant] * columns**0.5)).half()
        leasts = -8 * scales if quant == "q4_1" else None
        return PackedWeight(rows, columns, quants, scales, leasts)
