"""What a host counts its layers as, before anything is loaded."""

import pytest
import torch

from poolhouse_node import engine
from poolhouse_node.cli import loading
from poolhouse_node.cli.loading import EngineLoader
from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.gguf_header import TensorInfo
from poolhouse_node.weights.source import ModelStore

FILE, PACKED, FLOAT32 = 1152, 1536, 8192


@pytest.mark.parametrize(
    ("precision", "device", "compiler", "nvidia", "counted"),
    [
        ("exact", "cpu", True, False, FLOAT32),
        ("packed", "cpu", False, False, PACKED),
        ("auto", "cpu", True, True, PACKED),
        ("auto", "auto", True, False, PACKED),
        ("auto", "auto", False, False, FLOAT32),
        ("auto", "mps", True, False, FLOAT32),
        ("auto", "auto", True, True, FILE),
        ("auto", "cuda:1", True, True, FILE),
    ],
)
def test_layers_count_as_they_will_be_held(
    tmp_path, monkeypatch, precision, device, compiler, nvidia, counted
):
    monkeypatch.setattr(loading, "has_compiler", lambda: compiler)
    monkeypatch.setattr(loading, "has_nvidia", lambda: nvidia)
    loader = EngineLoader(ModelStore(tmp_path), device, precision=precision)
    info = TensorInfo("blk.0.ffn_up.weight", GgmlType.Q4_0, (64, 32), 0, FILE)
    assert loader.holds()(info) == counted


def test_what_auto_measures_is_measured_before_layers_come(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(engine, "choose_precision", lambda *of: asked.append(of))
    monkeypatch.setattr(engine, "set_threads", asked.append)
    loader = EngineLoader(ModelStore(tmp_path), "cpu", threads=3)
    loader.warm_up()
    loader._thread.shutdown()
    assert asked == [3, ("auto", torch.device("cpu"))]
