"""Which frames run as graphs, with captures that only note what they are asked."""

import threading

import pytest
import torch

from poolhouse_node.engine import graphs
from poolhouse_node.engine.graphs import FrameGraphs, without_captures


class Captured:
    """In place of a CUDA graph."""

    def __init__(self, step, memory, stream):
        self.result = step()

    def replay(self):
        return "replayed"


@pytest.fixture
def frames(monkeypatch):
    monkeypatch.setattr(graphs, "FrameGraph", Captured)
    made = FrameGraphs(torch.device("cpu"))
    made._is_capturing = True
    return made


def test_the_second_run_is_captured_and_replayed(frames):
    assert [frames.run("a", lambda: "run") for _ in range(3)] == ["run", "replayed", "replayed"]
    assert frames.run("b", lambda: "run") == "run"


def test_what_was_forgotten_is_captured_at_once(frames):
    captured = []
    for _ in range(2):
        frames.run("a", lambda: captured.append(1) or "run")
    frames.forget()
    assert frames.run("a", lambda: captured.append(1) or "run") == "replayed"
    assert len(captured) == 3


def test_nothing_is_captured_while_another_thread_may_not_be_disturbed(frames):
    frames.run("a", lambda: "run")
    results = []
    with without_captures():
        thread = threading.Thread(target=lambda: results.append(frames.run("a", lambda: "run")))
        thread.start()
        thread.join()
    assert results == ["run"]
    assert frames.run("a", lambda: "run") == "replayed"


def test_without_graphs_every_run_is_as_it_is():
    frames = FrameGraphs(torch.device("cpu"))
    assert [frames.run("a", lambda: "run") for _ in range(3)] == ["run"] * 3


def test_a_capture_that_fails_costs_speed_and_no_frame(frames, monkeypatch, caplog):
    def fails(*_):
        raise RuntimeError("spoilt\nlong story")

    frames.run("a", lambda: "run")
    monkeypatch.setattr(graphs, "FrameGraph", fails)
    assert frames.run("a", lambda: "run") == "run"
    assert "spoilt" in caplog.text
    assert "long story" not in caplog.text
    monkeypatch.setattr(graphs, "FrameGraph", Captured)
    assert frames.run("a", lambda: "run") == "replayed"


def test_after_three_failures_nothing_is_captured_any_more(frames, monkeypatch):
    tried = []

    def fails(*_):
        tried.append(1)
        raise RuntimeError("spoilt")

    monkeypatch.setattr(graphs, "FrameGraph", fails)
    assert [frames.run("a", lambda: "run") for _ in range(9)] == ["run"] * 9
    assert len(tried) == 3
