"""Memory of a load: its peak, which the check before it counts."""

import numpy as np
import pytest
import torch

from poolhouse_node.engine import load_shard, raw_matrix
from poolhouse_node.engine.keeping import ExactKeeper, PackedKeeper
from poolhouse_node.engine.loading import PartShelf
from poolhouse_node.engine.memory import MemoryNeed, held_as, loading_bytes, weight_bytes
from poolhouse_node.engine.raw_matrix import RawMatrix, in_pieces
from poolhouse_node.engine.state import AttentionShape, StateShape
from poolhouse_node.engine.tensors import LoadWatch, TensorLoader
from poolhouse_node.shard import OutOfMemory
from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.opening import open_weights
from tests.support.load_peak import measure_loads
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES
from tests.support.random_blocks import random_blocks

CPU = torch.device("cpu")
MIB = 1 << 20
INTERPRETER = 8 * MIB
"""Modules that a first load imports, holes in the heap."""
PRECISIONS = ("packed", "exact")
KEEPERS = {"packed": PackedKeeper(), "exact": ExactKeeper(CPU)}
LARGE_TABLE = SMALL_SHAPES["llama"].but(
    layers=1, width=512, vocabulary_size=1 << 16, tied=True, kind=GgmlType.Q4_0
)
"""32 million values: 24 MiB packed, 128 MiB as float32. Nearly all of the model is one matrix."""


@pytest.fixture
def small_pieces(monkeypatch):
    def use():
        monkeypatch.setattr(raw_matrix, "PIECE_VALUES", 1 << 12)

    return use


def random_raw(kind, rows, columns=256):
    data = random_blocks(kind, rows * columns, 1.0, np.random.default_rng(rows))
    return RawMatrix(torch.from_numpy(data.view(np.uint8)).view(rows, -1), kind, columns)


def counted_bytes(path, precision):
    with open_weights(path) as file:
        names = list(file.tensors)
        weights = weight_bytes(file, names, held_as(precision, CPU))
        return weights, weights + loading_bytes(file, names)


@pytest.mark.slow
def test_the_peak_of_a_load_is_near_what_it_leaves_and_was_counted(tmp_path):
    path = ModelMaker(LARGE_TABLE).write_gguf(tmp_path / "model.gguf")
    for precision, load in zip(PRECISIONS, measure_loads(path, 1, PRECISIONS), strict=True):
        weights, counted = counted_bytes(path, precision)
        assert load.held == pytest.approx(weights, rel=0.01)
        assert load.peak > 0.9 * load.held, "not measured"
        assert load.peak < counted + INTERPRETER
        assert counted < 1.1 * load.held


@pytest.mark.parametrize("kind", [GgmlType.Q4_0, GgmlType.Q6_K, GgmlType.BF16, GgmlType.F32])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_pieces_change_no_bit(kind, precision, small_pieces):
    """Matrices that end within a block of rows, one below the other."""
    parts = [random_raw(kind, rows) for rows in (100, 7, 64, 150)]
    x = torch.randn(3, 256, generator=torch.Generator().manual_seed(1))
    at_once = KEEPERS[precision].matrix(parts)
    small_pieces()
    in_parts = KEEPERS[precision].matrix(parts)
    assert len(list(in_pieces(parts, 64))) == 6
    assert torch.equal(in_parts(x), at_once(x))
    assert in_parts.held_bytes == at_once.held_bytes


def test_pieces_are_all_rows_in_their_order(small_pieces):
    small_pieces()
    parts = [random_raw(GgmlType.Q8_0, rows) for rows in (5, 40, 1)]
    pieces = list(in_pieces(parts))
    assert [piece.rows for piece in pieces] == [16, 16, 14]
    rows = torch.cat([part.data for part in parts])
    assert torch.equal(torch.cat([piece.data for piece in pieces]), rows)


def test_a_matrix_is_not_copied_out_of_its_file(tmp_path):
    path = ModelMaker(SMALL_SHAPES["llama"]).write_gguf(tmp_path / "model.gguf")
    name, watch = "blk.0.ffn_up.weight", LoadWatch(lambda _: None, lambda: False)
    with open_weights(path) as file:
        shape = file.tensors[name].shape
        matrix = TensorLoader(file, [name], CPU, watch).matrix(name, shape)
        assert matrix.data.data_ptr() == file.tensor_data(name).ctypes.data
        wanted = bytes(file.tensor_data(name))
    assert matrix.data.numpy().tobytes() == wanted, "the map lives as long as the matrix"


class TestCheckBeforeLoading:
    SHAPE = StateShape(64, attention=AttentionShape(1, 1, 16), recurrent=None)

    def test_what_a_load_takes_for_a_moment_counts(self):
        need = MemoryNeed(100 * MIB, self.SHAPE, loading=20 * MIB)
        assert need.saved_states(0, 120 * MIB) == 0
        with pytest.raises(OutOfMemory, match=r"0\.12 GB .*0\.10 for weights, 0\.02 to load them"):
            need.saved_states(0, 120 * MIB - 1)

    def test_it_does_not_count_beside_the_conversation_that_follows(self):
        state = MemoryNeed(0, self.SHAPE).state_bytes(0)
        need = MemoryNeed(100 * MIB, self.SHAPE, loading=state)
        assert need.saved_states(0, 100 * MIB + state) == 0
        with pytest.raises(OutOfMemory, match="for a conversation of 64 tokens"):
            need.saved_states(0, 100 * MIB + state - 1)

    @pytest.mark.parametrize("precision", PRECISIONS)
    def test_a_load_that_cannot_peak_does_not_begin(self, tmp_path, precision):
        shape = SMALL_SHAPES["llama"].but(layers=1, vocabulary_size=1 << 12, kind=GgmlType.Q8_0)
        path = ModelMaker(shape).write_gguf(tmp_path / "model.gguf")
        _, counted = counted_bytes(path, precision)
        told = []
        for free in (counted - 1, counted):
            try:
                load_shard(
                    path,
                    (0, 1),
                    context_size=1,
                    host=True,
                    device="cpu",
                    precision=precision,
                    shelf=PartShelf(available=lambda _, free=free: free, page_rows=1),
                ).close()
            except OutOfMemory as error:
                told.append(str(error))
        assert len(told) == 1
        assert "to load them with" in told[0]
