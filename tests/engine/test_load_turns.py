"""Loads that wait for each other: in what order they are shown to get on, and what ends a wait."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from poolhouse_node.engine.load_turns import LoadTurns
from poolhouse_node.engine.tensors import LoadCancelled, LoadWatch

PATIENCE_S = 10.0


class Load:
    """A load that takes its steps when the test says so, and what its room is shown."""

    def __init__(self, turns: LoadTurns) -> None:
        self.turns, self.shown, self.waits_said = turns, [], 0
        self.has_turn, self.moved, self.waiting = (threading.Event() for _ in range(3))
        self.go_on, self.stopped = threading.Event(), threading.Event()
        self.share = 0.0

    def _progress(self, share: float) -> None:
        self.shown.append(share)
        self.moved.set()

    def _waits(self) -> None:
        self.waits_said += 1
        self.waiting.set()

    def run(self) -> None:
        watch = LoadWatch(self._progress, self.stopped.is_set, self._waits)
        with self.turns.turn(watch) as own:
            self.has_turn.set()
            while self.share < 1.0:
                assert self.go_on.wait(PATIENCE_S)
                self.go_on.clear()
                own.progress(self.share)

    def step(self, share: float) -> None:
        assert self.has_turn.wait(PATIENCE_S)
        self.share = share
        self.moved.clear()
        self.go_on.set()
        assert self.moved.wait(PATIENCE_S)

    def until_shown(self, share: float) -> None:
        """Wait until its room is shown so much."""
        while not (self.shown and self.shown[-1] == pytest.approx(share)):
            self.moved.clear()
            assert self.moved.wait(PATIENCE_S)


@pytest.fixture
def start():
    """Start a load; one that does not have its turn at once waits when this returns."""
    turns, loads = LoadTurns(), []
    with ThreadPoolExecutor(3) as threads:

        def start() -> Load:
            load = Load(turns)
            load.future = threads.submit(load.run)
            loads.append(load)
            ready = load.has_turn if len(loads) == 1 else load.waiting
            assert ready.wait(PATIENCE_S)
            return load

        yield start
        for load in loads:
            load.stopped.set()
            load.share = 1.0
            load.go_on.set()


def test_a_load_alone_waits_for_nobody(start):
    load = start()
    for share in (0.25, 1.0):
        load.step(share)
    load.future.result(PATIENCE_S)
    assert load.shown == [0.25, 1.0]
    assert load.waits_said == 0


def test_a_load_that_waits_moves_half_its_way_with_the_one_before_it(start):
    first, second = start(), start()
    first.step(0.5)
    second.until_shown(0.25)
    first.step(0.8)
    second.until_shown(0.4)
    first.step(1.0)
    assert second.has_turn.wait(PATIENCE_S)
    reached = second.shown[-1]
    second.step(0.5)
    assert second.shown[-1] == pytest.approx((1 + reached) / 2)
    second.step(1.0)
    assert second.shown[-1] == 1.0
    assert second.shown == sorted(second.shown)
    assert second.waits_said == 1


def test_behind_two_loads_it_never_goes_back_and_always_has_something_left(start):
    first, second, third = start(), start(), start()
    first.step(0.8)
    third.until_shown(0.4)
    second.until_shown(0.4)
    first.step(1.0)
    while not (second.has_turn.is_set() or third.has_turn.is_set()):
        second.has_turn.wait(0.01)
    ahead, behind = (second, third) if second.has_turn.is_set() else (third, second)
    reached = behind.shown[-1]
    ahead.step(0.5)
    behind.until_shown(reached + (1 - reached) / 4)
    ahead.step(1.0)
    behind.step(1.0)
    assert behind.shown == sorted(behind.shown)
    assert max(behind.shown[:-1]) < 1.0


def test_a_load_that_waits_can_be_cancelled(start):
    first, second = start(), start()
    second.stopped.set()
    with pytest.raises(LoadCancelled):
        second.future.result(PATIENCE_S)
    first.step(1.0)
    first.future.result(PATIENCE_S)


def test_a_load_that_fails_gives_its_turn_on():
    turns = LoadTurns()
    watch = LoadWatch(lambda _: None, lambda: False)

    def fails() -> None:
        with turns.turn(watch):
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    with turns.turn(watch):
        pass
