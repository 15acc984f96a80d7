"""A worker's frames: control, order, errors."""

import asyncio

import pytest

from poolhouse_node.device.layers import FrameRunner, apply_control
from poolhouse_node.shard import FakeShard
from poolhouse_node.wire.slices import Control, Frame, Kind
from tests.support.fake_model import InlineCompute
from tests.support.virtual_time import run_virtual


class Recorder(FakeShard):
    """Notes the calls that change its state."""

    def __init__(self):
        super().__init__(0, 2)
        self.calls: list[str] = []

    def rollback(self, column):
        self.calls.append(f"rollback {column}")

    def save(self, slot):
        self.calls.append(f"save {slot}")

    def drop(self, slots):
        self.calls.append(f"drop {list(slots)}")

    def drop_all(self):
        self.calls.append("drop all")

    def reset(self):
        self.calls.append("reset")

    def load(self, slot):
        self.calls.append(f"load {slot}")


def test_control_is_applied_in_the_order_of_the_protocol():
    shard = Recorder()
    apply_control(shard, Control(rollback=2, save=7, drop=(4, 5), reset=True, load=7))
    assert shard.calls == ["rollback 2", "save 7", "drop [4, 5]", "reset", "load 7"]


def test_dropping_all_goes_before_dropping_some():
    shard = Recorder()
    apply_control(shard, Control(drop=(4,), drop_all=True))
    assert shard.calls == ["drop all"]


def test_no_control_does_nothing():
    shard = Recorder()
    apply_control(shard, Control.NONE)
    assert shard.calls == []


def payload(shard: FakeShard, columns: int) -> bytes:
    host = FakeShard(0, 1, has_embedding=True)
    return host.pack(host.embed(list(range(columns)))).data


def run_frames(frames, *, last: bool = True, shard: FakeShard | None = None):
    """What the runner forwards and reports."""

    async def main():
        forwarded, reported = [], []
        runner = FrameRunner(
            shard or FakeShard(0, 2),
            InlineCompute(lambda: 0.01),
            forwarded.append,
            reported.append,
            lambda: last,
        )
        work = asyncio.ensure_future(runner.work())
        for frame in frames:
            runner.put(frame)
        await asyncio.sleep(10)
        work.cancel()
        return forwarded, reported

    return run_virtual(main())


def frame(position: int, columns: int = 1, **fields) -> Frame:
    data = payload(FakeShard(0, 2), columns)
    return Frame(Kind.HIDDEN_B, position, columns, data, **fields)


def test_the_last_device_returns_frames_without_their_control():
    control = Control(reset=True)
    forwarded, reported = run_frames([frame(0, 4, control=control, spec=True)])
    assert reported == []
    assert forwarded[0].kind is Kind.HIDDENRET_B
    assert forwarded[0].control is Control.NONE
    assert forwarded[0].spec
    assert (forwarded[0].position, forwarded[0].columns) == (0, 4)


def test_a_device_in_the_middle_passes_the_control_on():
    control = Control(reset=True)
    forwarded, _ = run_frames([frame(0, 4, control=control)], last=False)
    assert forwarded[0].kind is Kind.HIDDEN_B
    assert forwarded[0].control == control


def test_frames_run_in_order_and_trouble_with_one_does_not_stop_the_next():
    bad = Frame(Kind.HIDDEN, 4, 1, b"\0")
    nothing = Frame(Kind.HIDDEN_B, 4, 0, b"")
    unknown_slot = frame(4, control=Control(load=9))
    forwarded, reported = run_frames([frame(0, 4), bad, nothing, unknown_slot, frame(4, 2)])
    assert [f.position for f in forwarded] == [0, 4]
    assert len(reported) == 3
    assert "no saved state 9" in reported[2]


class NotANumber(FakeShard):
    def run(self, hidden, position, *, snapshots=False):
        return super().run(hidden, position, snapshots=snapshots) * float("nan")


def test_a_frame_that_is_no_number_is_reported_and_not_sent():
    forwarded, reported = run_frames([frame(0)], shard=NotANumber(4, 6))
    assert forwarded == []
    assert reported == ["NaN produced on layers 4-5"]


@pytest.mark.filterwarnings("ignore:overflow")
def test_a_value_beyond_half_floats_is_not_sent_either():
    class TooLarge(FakeShard):
        def run(self, hidden, position, *, snapshots=False):
            return super().run(hidden, position, snapshots=snapshots) + 1e6

    forwarded, reported = run_frames([frame(0)], shard=TooLarge(4, 6))
    assert forwarded == []
    assert len(reported) == 1


def test_a_flood_of_frames_is_bounded():
    forwarded, reported = run_frames([frame(0)] * 400)
    assert len(forwarded) == 256
    assert len(reported) == 144
