"""Laps through the chain: what comes back, what is too late, what is nobody's."""

import asyncio
from dataclasses import dataclass, field

import pytest

from poolhouse_node.device.events import LapTimedOut
from poolhouse_node.device.laps import WorkerChain
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.wire.slices import Frame, Kind
from tests.support.virtual_time import run_virtual


@dataclass
class FakeLink:
    frames: list[Frame] = field(default_factory=list)

    def send_frame(self, frame: Frame) -> None:
        self.frames.append(frame)


def chain_of(*workers: str, rtt_s: float | None = None) -> tuple[WorkerChain, dict[str, FakeLink]]:
    links = {worker: FakeLink() for worker in workers}
    chain = WorkerChain(links.get, lambda peer: rtt_s, lambda peer: f"<{peer}>")
    chain.deal(list(workers))
    return chain, links


def sent(position: int = 7, kind: Kind = Kind.HIDDEN) -> Frame:
    return Frame(kind, position, 1, b"\1\2")


def back(position: int = 7, kind: Kind = Kind.HIDDENRET) -> Frame:
    return Frame(kind, position, 1, b"\3\4")


def test_a_frame_goes_to_the_first_and_comes_back_from_the_last():
    async def main():
        chain, links = chain_of("a", "b")
        lap = chain.lap(sent(), "token")
        assert links["a"].frames == [sent()]
        assert not chain.take("a", back())
        assert chain.take("b", back())
        assert await lap == b"\3\4"
        assert chain.in_flight == 0

    run_virtual(main())


@pytest.mark.parametrize(
    ("peer_id", "frame"),
    [
        ("stranger", back()),
        ("b", back(position=8)),
        ("b", back(kind=Kind.HIDDENRET_B)),
        ("b", back(kind=Kind.HIDDEN)),
    ],
)
def test_what_nobody_waits_for_is_ignored(peer_id, frame):
    async def main():
        chain, _ = chain_of("a", "b")
        chain.lap(sent(), "token")
        assert not chain.take(peer_id, frame)
        assert chain.in_flight == 1

    run_virtual(main())


@pytest.mark.parametrize(("kind", "timeout_s"), [("token", 30), ("verify", 90), ("prefill", 90)])
def test_a_lap_times_out_and_names_the_chain(kind, timeout_s):
    async def main():
        chain, _ = chain_of("a", "b")
        lap = chain.lap(sent(), kind)
        with pytest.raises(LapFailed, match=r"\(<a>, <b>\)") as caught:
            await lap
        assert caught.value.kind == "timeout"
        assert asyncio.get_running_loop().time() == timeout_s
        assert not chain.take("b", back())

    run_virtual(main())


def test_four_measured_laps_shorten_the_timeout():
    async def main():
        chain, _ = chain_of("a", rtt_s=0.5)
        for position in range(4):
            lap = chain.lap(sent(position), "token")
            await asyncio.sleep(1)
            chain.take("a", back(position))
            await lap
        started = asyncio.get_running_loop().time()
        with pytest.raises(LapFailed):
            await chain.lap(sent(4), "token")
        return asyncio.get_running_loop().time() - started

    assert run_virtual(main()) == 25


def test_a_broken_chain_fails_open_laps_and_later_ones_with_the_same_reason():
    async def main():
        chain, links = chain_of("a", "b")
        open_lap = chain.lap(sent(), "token")
        chain.break_off(LapFailed("left", "<a> left."))
        for lap in (open_lap, chain.lap(sent(8), "token")):
            with pytest.raises(LapFailed, match="<a> left"):
                await lap
        assert len(links["a"].frames) == 1
        chain.deal(["b"])
        chain.lap(sent(9), "token")
        assert links["b"].frames == [sent(9)]

    run_virtual(main())


def test_a_device_error_fails_the_laps_in_flight_only():
    async def main():
        chain, _ = chain_of("a")
        lap = chain.lap(sent(), "token")
        chain.fail(LapFailed("device-error", "<a> reported an error."))
        with pytest.raises(LapFailed):
            await lap
        later = chain.lap(sent(8), "token")
        chain.take("a", back(8))
        assert await later

    run_virtual(main())


def test_a_first_worker_without_a_link_is_named():
    async def main():
        chain, links = chain_of("a")
        links.clear()
        with pytest.raises(LapFailed, match="<a>"):
            await chain.lap(sent(), "token")

    run_virtual(main())


def after_a_barrier(scenario):
    """A chain whose barrier has just come back, and a lap behind it; what the lap gives."""

    async def main():
        chain, _ = chain_of("a")
        barrier = chain.lap(sent(0), "prefill", is_barrier=True)
        assert chain.take("a", back(0))
        await barrier
        lap = chain.lap(sent(1), "token")
        await scenario(chain)
        return await lap

    return run_virtual(main())


REPORT = LapFailed("device-error", "<a> reported an error.")


def test_a_report_right_behind_a_barrier_may_be_about_a_frame_before_it():
    async def late_report(chain):
        chain.report(REPORT)
        assert chain.take("a", back(1))

    assert after_a_barrier(late_report) == b"\3\4"


def test_a_report_right_behind_a_barrier_is_believed_when_nothing_comes_back():
    async def late_report(chain):
        chain.report(REPORT)
        await asyncio.sleep(19)
        assert chain.in_flight
        await asyncio.sleep(2)
        assert not chain.in_flight

    with pytest.raises(LapFailed, match="reported an error"):
        after_a_barrier(late_report)


def test_a_chain_that_moves_is_not_given_up_because_of_a_report():
    async def slow(chain):
        chain.report(REPORT)
        for position in (7, 8):  # frames of failed laps that were still in the chain
            await asyncio.sleep(8)
            assert not chain.take("a", back(position))
        await asyncio.sleep(8)
        assert chain.is_in_doubt
        assert chain.take("a", back(1))
        assert not chain.is_in_doubt

    assert after_a_barrier(slow) == b"\3\4"


def test_a_report_long_after_a_barrier_counts_at_once():
    async def later(chain):
        await asyncio.sleep(21)
        chain.report(REPORT)
        assert chain.in_flight == 0

    with pytest.raises(LapFailed, match="reported an error"):
        after_a_barrier(later)


def test_a_report_about_laps_that_came_back_says_nothing_of_later_ones():
    async def late_report(chain):
        chain.report(REPORT)
        chain.take("a", back(1))
        lap = chain.lap(sent(2), "token")
        with pytest.raises(LapFailed, match="No answer came back"):
            await lap

    after_a_barrier(late_report)


def test_laps_are_told_with_their_time():
    async def main():
        chain, _ = chain_of("a")
        told: list = []
        chain.notify = told.append
        for kind in ("token", "prefill"):
            chain.lap(sent(), kind)
            await asyncio.sleep(0.25)
            chain.take("a", back())
        assert [(each.kind, round(each.lap_s, 3)) for each in told] == [
            ("token", 0.25),
            ("prefill", 0.25),
        ]

    run_virtual(main())


def test_a_lap_that_is_too_late_is_told_once():
    async def main():
        chain, _ = chain_of("a")
        told: list = []
        chain.notify = told.append
        late = chain.lap(sent(), "token")
        chain.lap(sent(8), "prefill")
        with pytest.raises(LapFailed):
            await late
        await asyncio.sleep(100)
        assert told == [LapTimedOut("token")]

    run_virtual(main())
