"""What a host tells of its answers for whoever counts them."""

import asyncio

import pytest

from poolhouse_node.device.answer_record import Outcome, outcome_of
from poolhouse_node.device.events import (
    AnswerMeasured,
    AnswerResumed,
    LapReturned,
    PingAnswered,
    TokenMade,
)
from poolhouse_node.generate.ports import LapFailed
from tests.support.simulation import SimRoom
from tests.support.virtual_time import run_virtual

SPLIT = (4, 4, 4)


def in_a_room(scenario, **options):
    async def main():
        async with SimRoom(split=SPLIT, **options) as room:
            host = await room.host()
            for number in (1, 2):
                await room.join(f"worker-{number}")
            await host.until_devices(2)
            await host.start()
            return await scenario(room, host)

    return run_virtual(main())


def test_an_answer_has_its_figures():
    async def scenario(room, host):
        record = await host.ask("why?")
        sim = room.of(host)
        (measured,) = sim.seen(AnswerMeasured)
        assert measured.outcome is Outcome.LENGTH
        assert measured.prompt_tokens == record.prompt_tokens
        assert measured.answer_tokens == len(record.token_ids) == 12
        assert 0 == measured.queued_s < measured.ttft_s < measured.took_s
        gaps = [each.gap_s for each in sim.seen(TokenMade)]
        assert gaps[0] is None
        assert sum(gaps[1:]) == pytest.approx(measured.took_s - measured.ttft_s)
        kinds = {each.kind for each in sim.seen(LapReturned)}
        assert kinds == {"token", "prefill"}

    in_a_room(scenario)


def test_a_question_that_waits_counts_its_time_from_its_arrival():
    async def scenario(room, host):
        await asyncio.gather(host.ask("first"), host.ask("second"))
        first, second = room.of(host).seen(AnswerMeasured)
        assert second.queued_s == pytest.approx(first.took_s)
        assert second.ttft_s > second.queued_s

    in_a_room(scenario)


def test_a_stopped_answer_was_stopped_by_the_user():
    async def scenario(room, host):
        asked = host.ask("why?")
        await asyncio.sleep(0.2)
        host.stop()
        await asked
        assert room.of(host).seen(AnswerMeasured)[0].outcome is Outcome.STOPPED_BY_USER

    in_a_room(scenario, max_tokens=1000)


def test_an_answer_that_goes_on_says_so():
    async def scenario(room, host):
        asked = host.ask("why?")
        await asyncio.sleep(0.5)
        worker = next(sim for sim in room.devices if sim.device is not host)
        worker.freeze()
        await asyncio.sleep(40)
        worker.thaw()
        await asked
        sim = room.of(host)
        assert len(sim.seen(AnswerResumed)) == 1
        assert len(sim.seen(TokenMade)) == sim.seen(AnswerMeasured)[0].answer_tokens

    in_a_room(scenario, max_tokens=200)


def test_pings_are_told():
    async def scenario(room, host):
        await asyncio.sleep(30)
        assert all(0 < each.rtt_s < 1 for each in room.of(host).seen(PingAnswered))
        assert room.of(host).seen(PingAnswered)

    in_a_room(scenario)


@pytest.mark.parametrize(
    ("reason", "error", "outcome"),
    [
        ("stop", None, Outcome.STOP),
        ("max", None, Outcome.LENGTH),
        ("ctx", None, Outcome.LENGTH),
        ("abort", None, Outcome.STOPPED_BY_USER),
        ("error", LapFailed("timeout", ""), Outcome.TIMEOUT),
        ("error", LapFailed("left", ""), Outcome.LINK_LOST),
        ("error", LapFailed("re-deal", ""), Outcome.LINK_LOST),
        ("error", LapFailed("not-a-number", ""), Outcome.ERROR),
        ("error", LapFailed("device-error", ""), Outcome.ERROR),
        ("error", ValueError(), Outcome.ERROR),
    ],
)
def test_every_end_has_an_outcome(reason, error, outcome):
    assert outcome_of(reason, error) is outcome
