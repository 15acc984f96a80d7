"""The engine's kernels for tests: on a GPU when there is one, else in Triton's interpreter."""

import os

import pytest
import torch
from torch import Tensor

from poolhouse_node.cli.bench.shape_model import config_of, make_blocks
from poolhouse_node.cli.bench.shape_weights import KernelWeights
from poolhouse_node.cli.bench.shapes import Shape
from poolhouse_node.engine.layers.experts import ExpertBank
from poolhouse_node.engine.layers.feed_forward import (
    DenseFeedForward,
    ExpertFeedForward,
    SharedExpert,
)
from poolhouse_node.engine.layers.linear import DenseMatrix
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
QUIET = [
    # numpy says aloud what kernels do with numbers that are not finite.
    pytest.mark.filterwarnings("ignore::RuntimeWarning"),
]

if DEVICE.type == "cpu":
    # Read when kernels are defined, and again when they run; nothing else here uses Triton.
    os.environ["TRITON_INTERPRET"] = "1"

from poolhouse_node.engine.kernels.activations import Levels, fill, levels_for  # noqa: E402
from poolhouse_node.engine.kernels.attention import AngleTable  # noqa: E402
from poolhouse_node.engine.kernels.delta import SLOTS, Slots  # noqa: E402
from poolhouse_node.engine.kernels.fused import DeviceState, FusedBlocks  # noqa: E402
from poolhouse_node.engine.kernels.packing import unpack  # noqa: E402


def random_blocks(
    kind: GgmlType, rows: int, columns: int, seed: int = 0, scale: float = 0.02
) -> Tensor:
    """Bytes of a matrix as in a model file, [rows * blocks, block size]."""
    random = torch.Generator().manual_seed(seed)
    count = rows * columns // 32
    raw = torch.randint(
        0, 256, (count, BLOCKS[kind].size_bytes), dtype=torch.uint8, generator=random
    )
    halves_at = (0, 2) if kind is GgmlType.Q4_1 else (0,)
    for at in halves_at:
        values = (torch.rand(count, generator=random) * scale).half()
        raw[:, at : at + 2] = values.view(torch.uint8).view(count, 2)
    return raw


def levels_of(x: Tensor, padded: int, *, apart: bool = False) -> Levels:
    """Columns as levels."""
    levels = levels_for(x.shape[0], padded, x.device, apart=apart)
    fill(levels, x)
    return levels


class TwinWeights(KernelWeights):
    """Packed weights that remember themselves, so that dense twins can be made of them."""

    def __init__(self, seed: int, quant: str = "q4_0") -> None:
        super().__init__(seed, DEVICE, quant)
        self.made = []

    def vector(self, size, mean=0.0, spread=1.0):
        self.made.append(super().vector(size, mean, spread))
        return self.made[-1]

    def matrix(self, rows, columns, quant=None):
        self.made.append(super().matrix(rows, columns, quant))
        return self.made[-1]

    def experts(self, count, used, width, ffn_width):
        self.made.append(super().experts(count, used, width, ffn_width))
        return self.made[-1]


class _DenseTwins:
    """Gives the dense twin of what was made, in the same order, on the CPU."""

    def __init__(self, made) -> None:
        self._made = iter(made)

    def vector(self, size, mean=0.0, spread=1.0):
        return next(self._made).cpu()

    def matrix(self, rows, columns):
        return DenseMatrix(unpack(next(self._made).weight).cpu())

    def experts(self, count, used, width, ffn_width):
        packed = next(self._made)
        both = unpack(packed.gate_up.weight).cpu().view(count + 1, 2 * ffn_width, width)
        down = unpack(packed.down.weight).cpu().view(count + 1, width, ffn_width)
        router = packed.router.cpu()
        shared = DenseFeedForward(DenseMatrix(both[count]), DenseMatrix(down[count]))
        gate, up = both[:count].split(ffn_width, dim=1)
        return ExpertFeedForward(
            router=DenseMatrix(router[:count]),
            experts=ExpertBank.of_matrices(gate, up, down[:count]),
            shared=SharedExpert(router[count], shared),
            used=used,
            normalised=True,
        )


def twin_blocks(shape: Shape, positions: int, seed: int = 0):
    """The same layers twice: for kernels on :data:`DEVICE`, and float32 on the CPU."""
    twins = TwinWeights(seed)
    layers = (0, shape.layers)
    packed = make_blocks(shape, layers, twins, context_size=positions, device=DEVICE)
    dense = make_blocks(
        shape,
        layers,
        _DenseTwins(twins.made),
        context_size=positions,
        device=torch.device("cpu"),
    )
    return packed, dense


class FusedRoom:
    """One room on the kernels, with a shuffled block table and places for snapshots."""

    def __init__(self, shape: Shape, blocks, positions: int) -> None:
        angles = AngleTable.make(shape.rotated, shape.rope_base, positions, DEVICE)
        self.blocks = FusedBlocks(blocks, angles)
        state = config_of(shape).state_shape((0, shape.layers), positions)
        attention, recurrent = state.attention, state.recurrent
        count = -(-positions // 16)
        rows = (count + 1, 16, attention.kv_heads, attention.head_size)
        memory = (recurrent.layers, recurrent.heads, recurrent.key_size, recurrent.value_size)
        window = (recurrent.layers, recurrent.taps - 1, recurrent.channels)
        table = 1 + torch.randperm(count, generator=torch.Generator().manual_seed(7))
        self.memories = torch.zeros(SLOTS, *memory, device=DEVICE)
        self.windows = torch.zeros(SLOTS, *window, device=DEVICE)
        self.state = DeviceState(
            pages=[
                tuple(torch.zeros(rows, dtype=torch.float16, device=DEVICE) for _ in range(2))
                for _ in range(attention.layers)
            ],
            table=table.to(DEVICE, torch.int32),
            position=torch.zeros(1, dtype=torch.int32, device=DEVICE),
            slots=Slots(addresses_of(self.memories), addresses_of(self.windows)),
        )

    @property
    def memory(self) -> Tensor:
        """Of every recurrent layer, live."""
        return self.memories[0]

    @property
    def window(self) -> Tensor:
        return self.windows[0]

    def run(self, x: Tensor, position: int, *, keeps: bool = False) -> Tensor:
        """Columns through all layers, what was still to be added included."""
        self.state.position.fill_(position)
        x = x.to(DEVICE).clone()
        delta = self.blocks.run(x, self.state, position=position, keeps=keeps)
        for part in delta:
            x = x + part
        return x


def addresses_of(slots: Tensor) -> Tensor:
    """Where each of ``slots`` [n, ...] begins, on the device."""
    return torch.tensor([slot.data_ptr() for slot in slots], device=DEVICE)


def relative_error(got: Tensor, wanted: Tensor) -> float:
    """Length of the difference to that of what is wanted."""
    wanted = wanted.double().cpu()
    return float((got.double().cpu() - wanted).norm() / wanted.norm())
