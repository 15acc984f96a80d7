"""Peers that do not keep to the protocol: a room answers on, and answers rightly."""

import asyncio
import random

import msgspec
import pytest

from poolhouse_node.device.answering import ERROR_PAUSES_S
from poolhouse_node.shard import FakeShard, ShardError
from poolhouse_node.wire.frame_messages import FRAME_TYPES
from poolhouse_node.wire.messages import MESSAGE_TYPES
from poolhouse_node.wire.slices import Control, Frame, Kind
from tests.sim.test_room import expected_ids, room_of
from tests.support.chaos_rules import RightTexts
from tests.support.fake_model import FakeLoader
from tests.support.simulation import HOST_ID, SimRoom
from tests.support.stranger import Stranger
from tests.support.virtual_time import run_virtual

SPLIT = (4, 4, 4)
QUESTION = "why?"
MOST = 60
"""Tokens: the answer is still running when a stranger has found its way in."""


def unharmed(*devices):
    """No background task of any device has failed."""
    for device in devices:
        assert not device.tasks.failure.done(), device.tasks.failure.exception()


def room_with(stranger_does, *, while_answering: bool = False):
    """A room of three in which a stranger does something, and the ids of an answer after it."""

    @room_of(3, split=SPLIT, compute_s=0.03, max_tokens=MOST)
    async def ids(room, host, joined):
        stranger = Stranger(room)
        asked = host.ask(QUESTION) if while_answering else None
        await stranger_does(stranger, host, joined)
        await asyncio.sleep(10)
        record = await (asked or host.ask(QUESTION))
        unharmed(host, *joined)
        assert record.failure is None
        return list(record.token_ids)

    return ids


def payload(columns: int) -> bytes:
    return b"\x00\x3c" * 8 * columns


@pytest.mark.parametrize("ua", [["iPhone"], {"a": 1}, 7, None, "x" * 3000])
def test_an_odd_kind_of_device_is_a_device(ua):
    async def enter(stranger, host, joined):
        await stranger.enter(HOST_ID, meta={"ua": ua, "phone": [], "webgpu": {}, "contribGB": "a"})

    assert room_with(enter) == expected_ids(SPLIT, QUESTION, MOST)


@pytest.mark.parametrize("kind", list(Kind))
@pytest.mark.parametrize("worker", [0, 1])
def test_frames_of_a_guest_do_not_reach_the_layers(kind, worker):
    """A worker takes frames from the device before it in the chain."""

    async def send_frames(stranger, host, joined):
        link = await stranger.reach(joined[worker].network.peer_id)
        for _ in range(40):
            await asyncio.sleep(0.01)
            link.send_frame(Frame(kind, 0, 1, payload(1), control=Control(reset=True)))

    assert room_with(send_frames, while_answering=True) == expected_ids(SPLIT, QUESTION, MOST)


def test_a_crowd_with_much_to_say_about_itself_does_not_break_the_roster():
    async def crowd(stranger, host, joined):
        for number in range(30):
            meta = {f"key {i}": "x" * 4000 for i in range(60)}
            other = Stranger(stranger.room)
            await other.enter(HOST_ID, name=f"loud {number}", meta=meta)

    assert room_with(crowd) == expected_ids(SPLIT, QUESTION, MOST)


WORDS = ("host", "worker-1", "worker-2", "stranger", "fake", HOST_ID, "", "0–3", "x" * 9000)
"""Texts that mean something in a room, and some that do not."""


def soup(chance: random.Random, ids: list[str], depth: int = 2) -> object:
    """A value of any type, rather often one that a field may have."""
    kinds = [
        lambda: chance.choice([*WORDS, *ids]),
        lambda: chance.choice([0, 1, -1, 4, 12, 2**31, 2**53, -(2**53), 0.5, float("nan")]),
        lambda: chance.choice([None, True, False, b"", b"\xff" * 40]),
        lambda: [soup(chance, ids, depth - 1) for _ in range(chance.randrange(4))],
        lambda: {chance.choice(WORDS): soup(chance, ids, depth - 1) for _ in range(3)},
    ]
    return chance.choice(kinds if depth else kinds[:3])()


def any_message(chance: random.Random, ids: list[str]) -> dict:
    """A message of a known type with fields of that type and wild values."""
    kind = chance.choice([*MESSAGE_TYPES, *FRAME_TYPES, "no-such-thing"])
    struct = MESSAGE_TYPES.get(kind)
    names = [field.encode_name for field in msgspec.structs.fields(struct)] if struct else ["pos"]
    return {"t": kind} | {name: soup(chance, ids) for name in names if chance.random() < 0.9}


ENDS_THE_LINK = {"bye", "leaving"}


@pytest.mark.parametrize("seed", range(40))
def test_a_guest_that_says_anything_at_all_changes_no_answer(seed):
    chance = random.Random(seed)

    async def babble(stranger, host, joined):
        ids = [device.network.peer_id for device in (host, *joined)]
        links = [await stranger.enter(ids[0]), *[await stranger.reach(peer) for peer in ids[1:]]]
        for _ in range(300):
            message = any_message(chance, ids)
            if message["t"] not in {*ENDS_THE_LINK, "ai-ask"}:  # a question is its good right
                chance.choice(links).send(message)
            await asyncio.sleep(chance.choice([0, 0.005]))

    assert room_with(babble, while_answering=True) == expected_ids(SPLIT, QUESTION, MOST)


def test_odd_names_of_the_devices_themselves_do_not_stop_the_frames():
    async def main():
        async with SimRoom(split=SPLIT, max_tokens=MOST) as room:
            host = await room.host(name='<"&> ' + "h" * 300)
            for _ in range(2):
                await room.join("\x1b[31m'ann' \u202e" + "\U0001f986" * 60)
            await host.until_devices(2)
            await host.start()
            return await host.ask(QUESTION)

    record = run_virtual(main())
    assert list(record.token_ids) == expected_ids(SPLIT, QUESTION, MOST)


@pytest.mark.parametrize("broken_frame", [1, 2, 5, 13])
@pytest.mark.parametrize("place", [0, 1])
def test_what_a_failed_answer_left_in_the_chain_does_not_reach_the_next(broken_frame, place):
    """Its other rounds still come back, and their errors: the next try waits for them."""
    frames = 0

    class OnceBroken(FakeShard):
        def run(self, hidden, position, *, snapshots=False):
            nonlocal frames
            frames += 1
            if frames == broken_frame:
                raise ShardError("no memory for this frame")
            return super().run(hidden, position, snapshots=snapshots)

    async def main():
        async with SimRoom(split=SPLIT, compute_s=0.05, max_tokens=MOST) as room:
            host = await room.host()
            kinds = [FakeShard, FakeShard]
            kinds[place] = OnceBroken
            for number, kind in enumerate(kinds):
                await room.join(f"worker-{number}", loader=FakeLoader(kind=kind))
            await host.until_devices(2)
            await host.start()
            return await asyncio.gather(host.ask("a" * 170), host.ask("b" * 170))

    first, second = run_virtual(main())
    assert [first.failure, second.failure] == [None, None]
    oracle = RightTexts(MOST)
    right = oracle.ids([], "a" * 170)
    assert list(first.token_ids) == right
    assert list(second.token_ids) == oracle.ids([("a" * 170, right)], "b" * 170)


@pytest.mark.parametrize("place", [0, 1])
def test_a_device_that_fails_at_every_try_ends_the_answer_with_its_words(place):
    class Broken(FakeShard):
        def run(self, hidden, position, *, snapshots=False):
            raise ShardError("no memory for this frame")

    async def main():
        async with SimRoom(split=SPLIT, compute_s=0.05, max_tokens=MOST) as room:
            host = await room.host()
            kinds = [FakeShard, FakeShard]
            kinds[place] = Broken
            for number, kind in enumerate(kinds):
                await room.join(f"worker-{number}", loader=FakeLoader(kind=kind))
            await host.until_devices(2)
            await host.start()
            return await host.ask(QUESTION)

    record = run_virtual(main())
    assert record.failure == f"worker-{place} reported an error: no memory for this frame"
    assert not record.token_ids


def test_stop_does_not_wait_for_the_next_try():
    class Broken(FakeShard):
        def run(self, hidden, position, *, snapshots=False):
            raise ShardError("no memory for this frame")

    async def main():
        async with SimRoom(split=SPLIT, max_tokens=MOST) as room:
            host = await room.host()
            for number in range(2):
                await room.join(f"worker-{number}", loader=FakeLoader(kind=Broken))
            await host.until_devices(2)
            await host.start()
            asked = host.ask(QUESTION)
            await asyncio.sleep(ERROR_PAUSES_S[0] + ERROR_PAUSES_S[1] / 2)
            stopped_at = asyncio.get_running_loop().time()
            host.stop()
            record = await asked
            return record, asyncio.get_running_loop().time() - stopped_at

    record, took_s = run_virtual(main())
    assert record.reason == "abort"
    assert took_s < 1
