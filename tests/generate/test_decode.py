"""Answers over a chain of fake shards: the same text for any number of devices."""

import pytest

from poolhouse_node.generate.decode import GenerationRequest, answer
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.generate.trunk import Trunk
from poolhouse_node.shard import FakeShard
from poolhouse_node.wire.slices import Kind
from tests.support.fake_chain import FakeChain
from tests.support.fake_model import InlineCompute, make_shard

GREEDY = Sampling(0.0)


def trunk_over(*ranges: tuple[int, int], context_size: int = 4096, **chain) -> Trunk:
    host = make_shard(ranges[0], context_size=context_size, host=True)
    workers = [make_shard(r, context_size=context_size, host=False) for r in ranges[1:]]
    return Trunk(host, InlineCompute(), FakeChain(workers, **chain))


async def ids_of(
    trunk: Trunk, prompt: list[int], most: int = 20, *, stop_after: int = 10**9, **request
):
    shown: list[int] = []
    result = await answer(
        trunk,
        GenerationRequest(prompt, most, GREEDY, request.get("end_ids", frozenset())),
        draw=lambda: 0.5,
        show=shown.append,
        stopped=lambda: len(shown) >= stop_after,
        progress=lambda fed, total: None,
    )
    assert shown == result.ids
    return result


PROMPT = list(range(3, 60))


async def test_frames_carry_the_reset_once_and_stay_within_sixteen_columns():
    trunk = trunk_over((0, 4), (4, 12))
    await ids_of(trunk, PROMPT, 3)
    frames = trunk.chain.frames
    assert [frame.columns for frame in frames[:5]] == [16, 16, 16, 8, 1]
    assert [frame.control.reset for frame in frames] == [True, *[False] * (len(frames) - 1)]
    assert [frame.kind for frame in frames[5:]] == [Kind.HIDDEN, Kind.HIDDEN]
    assert [frame.position for frame in frames] == [0, 16, 32, 48, 56, 57, 58]


async def test_at_most_six_rounds_are_in_flight():
    trunk = trunk_over((0, 4), (4, 12), delay_s=0.1)
    await ids_of(trunk, list(range(150)), 1)
    assert trunk.chain.most_in_flight == 6


async def test_an_answer_does_not_depend_on_who_holds_which_layers():
    """As with a real model: the fake keeps a history per layer."""
    first = await ids_of(trunk_over((0, 4), (4, 8), (8, 12)), PROMPT)
    other = await ids_of(trunk_over((0, 6), (6, 12)), PROMPT)
    shorter = await ids_of(trunk_over((0, 4), (4, 8)), PROMPT)
    assert first.ids == other.ids != shorter.ids


async def test_a_follow_up_reuses_what_the_caches_hold():
    trunk = trunk_over((0, 4), (4, 12))
    first = await ids_of(trunk, PROMPT, 5)
    fed = list(trunk.fed)
    assert fed == PROMPT + first.ids[:-1]
    sent = len(trunk.chain.frames)
    longer = PROMPT + first.ids + [7, 8, 9]
    follow_up = await ids_of(trunk, longer, 5)
    assert trunk.chain.frames[sent].position == len(fed)
    assert not trunk.chain.frames[sent].control.reset
    fresh = await ids_of(trunk_over((0, 4), (4, 12)), longer, 5)
    assert follow_up.ids == fresh.ids


async def test_the_same_prompt_again_starts_from_nothing():
    trunk = trunk_over((0, 4), (4, 12))
    first = await ids_of(trunk, PROMPT, 5)
    again = await ids_of(trunk, PROMPT, 5)
    assert first.ids == again.ids


async def test_solo_is_the_same_code_without_frames():
    trunk = trunk_over((0, 12))
    result = await ids_of(trunk, list(range(600)), 5)
    assert len(result.ids) == 5
    assert trunk.chain.frames == []
    assert trunk.fed == list(range(600)) + result.ids[:-1]


@pytest.mark.parametrize("ranges", [[(0, 12)], [(0, 4), (4, 12)]])
async def test_why_an_answer_ends(ranges):
    whole = (await ids_of(trunk_over(*ranges), PROMPT, 10)).ids
    ended = await ids_of(trunk_over(*ranges), PROMPT, 10, end_ids=frozenset({whole[3]}))
    assert (ended.reason, ended.ids) == ("stop", whole[:3])
    stopped = await ids_of(trunk_over(*ranges), PROMPT, 10, stop_after=4)
    assert (stopped.reason, stopped.ids) == ("abort", whole[:4])
    full = await ids_of(trunk_over(*ranges, context_size=60), PROMPT, 100)
    assert full.reason in {"ctx", "max"}
    assert full.ids == whole[:3]
    assert (await ids_of(trunk_over(*ranges), PROMPT, 10)).reason == "max"


async def test_a_stop_before_the_prompt_is_fed_shows_nothing_and_keeps_what_was_fed():
    trunk = trunk_over((0, 4), (4, 12))
    result = await ids_of(trunk, PROMPT, 10, stop_after=0)
    assert (result.reason, result.ids) == ("abort", [])
    assert trunk.fed == []
    assert (await ids_of(trunk, PROMPT, 5)).ids == (
        await ids_of(trunk_over((0, 4), (4, 12)), PROMPT, 5)
    ).ids


async def test_a_failed_lap_ends_the_answer_and_forgets_the_caches():
    error = LapFailed("left", "otter left.")
    trunk = trunk_over((0, 4), (4, 12), fail_at={8: error})
    with pytest.raises(LapFailed, match="otter left"):
        await ids_of(trunk, PROMPT)
    assert trunk.fed is None
    trunk.chain.fail_at.clear()
    assert (await ids_of(trunk, PROMPT, 5)).ids == (
        await ids_of(trunk_over((0, 4), (4, 12)), PROMPT, 5)
    ).ids


class Broken(FakeShard):
    """Its layers give infinity."""

    def run(self, hidden, position, *, snapshots=False):
        return super().run(hidden, position, snapshots=snapshots) + float("inf")


async def test_values_that_are_no_numbers_are_never_sent():
    chain = FakeChain([make_shard((4, 12), context_size=64, host=False)])
    trunk = Trunk(Broken(0, 4, has_embedding=True), InlineCompute(), chain)
    with pytest.raises(LapFailed) as caught:
        await ids_of(trunk, PROMPT)
    assert caught.value.kind == "not-a-number"
    assert chain.frames == []


async def test_caches_forgotten_as_the_last_lap_comes_back_are_no_stop():
    trunk = trunk_over((0, 4), (4, 12))
    returned = trunk.chain.lap

    def lap_then_forget(frame, kind, **options):
        lap = returned(frame, kind, **options)
        if frame.position + frame.columns == len(PROMPT):
            lap.add_done_callback(lambda _: trunk.forget("a link broke"))
        return lap

    trunk.chain.lap = lap_then_forget
    with pytest.raises(LapFailed, match="a link broke"):
        await ids_of(trunk, PROMPT, 5)
