"""What a host counts its layers as, before anything is loaded."""

import asyncio
import threading
from types import SimpleNamespace

import pytest
import torch

from poolhouse_node import engine
from poolhouse_node.cli import loading
from poolhouse_node.cli.loading import EngineLoader, describe_engine
from poolhouse_node.engine import loading as engine_loading
from poolhouse_node.engine import precision
from poolhouse_node.shard import FakeShard
from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.gguf_header import TensorInfo
from poolhouse_node.weights.source import ModelFile, ModelStore
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES

ON_GPU, PACKED, FLOAT32 = 1152, 1536, 8192


@pytest.mark.parametrize(
    ("precision", "device", "compiles_for", "nvidia", "counted"),
    [
        ("exact", "cpu", "cpu", False, FLOAT32),
        ("packed", "cpu", "", False, PACKED),
        ("auto", "cpu", "cpu", True, PACKED),
        ("auto", "auto", "cpu", False, PACKED),
        ("auto", "auto", "cuda", False, FLOAT32),
        ("auto", "mps", "cpu cuda", False, FLOAT32),
        ("auto", "auto", "cuda", True, ON_GPU),
        ("auto", "cuda:1", "cuda", True, ON_GPU),
        ("auto", "auto", "cpu", True, FLOAT32),
        ("auto", "cuda:1", "cpu", True, FLOAT32),
        ("packed", "cuda", "", True, ON_GPU),
        ("exact", "cuda", "cuda", True, FLOAT32),
    ],
)
def test_layers_count_as_they_will_be_held(
    tmp_path, monkeypatch, precision, device, compiles_for, nvidia, counted
):
    kinds = compiles_for.split()
    monkeypatch.setattr(loading, "cpu_fault", lambda: None if "cpu" in kinds else "no numba")
    monkeypatch.setattr(loading, "cuda_fault", lambda: None if "cuda" in kinds else "no Triton")
    monkeypatch.setattr(loading, "has_nvidia", lambda: nvidia)
    loader = EngineLoader(ModelStore(tmp_path), device, precision=precision)
    info = TensorInfo("blk.0.ffn_up.weight", GgmlType.Q4_0, (64, 32), 0, 77)
    assert loader.held().tensor_bytes(info) == counted
    assert loader.held().key_value_bytes == (2 if counted == ON_GPU else 4)


def test_what_auto_measures_is_measured_before_layers_come(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(engine, "choose_precision", lambda *of: asked.append(of))
    monkeypatch.setattr(engine, "set_threads", asked.append)
    loader = EngineLoader(ModelStore(tmp_path), "cpu", threads=3)
    loader.warm_up()
    loader._thread.shutdown()
    assert asked == [3, ("auto", torch.device("cpu"))]


async def test_a_part_that_is_loaded_when_nobody_wants_it_any_more_is_closed(tmp_path, monkeypatch):
    """The shelf of a process with several rooms would hold it for ever."""
    begun, go_on, closed = threading.Event(), threading.Event(), threading.Event()

    def load_shard(*_, **__):
        begun.set()
        assert go_on.wait(10)
        return SimpleNamespace(close=closed.set)

    monkeypatch.setattr(engine, "load_shard", load_shard)
    own = ModelFile("file-0", "mine", tmp_path / "mine.gguf")
    loader = EngineLoader(ModelStore(tmp_path), "cpu", own=own)
    load = asyncio.ensure_future(
        loader.load("file-0", (0, 2), context_size=64, host=False, progress=lambda _: None)
    )
    await asyncio.to_thread(begun.wait, 10)
    load.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await load
    assert await asyncio.to_thread(closed.wait, 10)


def card_with_kernels(monkeypatch):
    """torch's ``meta`` device holds no values: as a card it can be loaded on, not computed with."""
    card = torch.device("meta")
    monkeypatch.setattr(engine_loading, "pick_device", lambda _: card)
    monkeypatch.setattr(precision, "has_kernels", lambda device: device == card)
    monkeypatch.setattr(engine_loading, "_on_kernels", lambda spec: spec.precision == "packed")


def test_weights_that_suit_no_kernel_are_told_as_float32(tmp_path, monkeypatch):
    """As ``auto`` keeps them, though it takes packed ones on such a card."""
    card_with_kernels(monkeypatch)
    path = ModelMaker(SMALL_SHAPES["llama"].but(kind=GgmlType.Q4_0)).write_gguf(tmp_path / "m.gguf")
    shard = engine.load_shard(path, (0, 1), context_size=8, host=False, precision="auto")
    assert precision.choose_precision("auto", shard.device) == "packed"
    assert describe_engine(shard) == f"torch {torch.__version__} on meta, float32"


@pytest.mark.parametrize(("asked", "told"), [("packed", "packed weights"), ("exact", "float32")])
def test_the_engine_is_told_as_it_was_loaded(tmp_path, asked, told):
    path = ModelMaker(SMALL_SHAPES["llama"].but(kind=GgmlType.Q4_0)).write_gguf(tmp_path / "m.gguf")
    shard = engine.load_shard(
        path, (0, 1), context_size=8, host=False, device="cpu", precision=asked
    )
    assert describe_engine(shard) == f"torch {torch.__version__} on cpu, {told}"
    shard.close()


def test_other_engines_and_none_are_told():
    assert describe_engine(FakeShard(0, 1)) == "FakeShard on cpu"
    assert "no layers" in describe_engine(None)
