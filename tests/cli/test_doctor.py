"""What ``poolhouse doctor`` says of packed weights. The rest: ``test_commands.py``."""

import sys

import pytest
import torch

from poolhouse_node import engine
from poolhouse_node.cli import doctor

FAULTS = {"cpu": "numba is not installed (pip it)", "cuda": "Triton finds no C compiler (apt it)"}


@pytest.fixture
def finding(monkeypatch):
    def examine(kind, missing):
        for each, fault in FAULTS.items():
            said = fault if each in missing else None
            monkeypatch.setattr(doctor, f"{each}_fault", lambda said=said: said)
        monkeypatch.setattr(engine, "pick_device", lambda _: torch.device(kind))
        return doctor._packed_weights()

    return examine


@pytest.mark.parametrize(
    ("kind", "missing", "by"),
    [("cpu", {"cuda"}, "numba"), ("cuda", {"cpu"}, "Triton")],
)
def test_what_compiles_for_the_device_that_computes_is_named(finding, kind, missing, by):
    found = finding(kind, missing)
    assert (found.what, found.verdict) == ("packed weights", "ok")
    assert by in found.words


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_what_is_missing_is_a_note_that_says_what_to_do(finding, kind):
    found = finding(kind, {kind})
    assert found.verdict == "note"
    assert found.words.startswith(FAULTS[kind])
    assert "float32" in found.words


def test_other_devices_have_no_products(finding):
    assert finding("mps", set()).words.startswith("there are no products for mps")
    assert finding("mps", set()).verdict == "note"


def test_without_torch_the_cpu_is_looked_at(finding, monkeypatch):
    monkeypatch.setitem(sys.modules, "poolhouse_node.engine", None)
    assert finding("cuda", {"cpu"}).words.startswith(FAULTS["cpu"])
