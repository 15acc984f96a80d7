"""Whole rooms in virtual time: real host, worker, guest and link code over a bad network."""

import asyncio
from dataclasses import dataclass

import pytest

from poolhouse_node.device.answers import AskFailed
from poolhouse_node.device.dealing import StartError
from poolhouse_node.device.events import (
    AnswerEnded,
    AnswerWaits,
    Dealt,
    DeviceJoined,
    DeviceLeft,
    DeviceStalled,
    Notice,
    Queued,
    RoomDegraded,
    RoomOnline,
    TokenShown,
)
from poolhouse_node.device.joined import JoinFailed
from poolhouse_node.generate.conversation import Conversation, Exchange
from poolhouse_node.generate.decode import GenerationRequest, answer
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.generate.trunk import Trunk
from poolhouse_node.room.asks import AskRefused
from poolhouse_node.shard import FakeShard
from poolhouse_node.wire.messages.loading import Ready
from tests.support.fake_chain import FakeChain
from tests.support.fake_model import END_ID, FakeLoader, FakeTokenizer, InlineCompute, make_shard
from tests.support.fake_rtc import Weather
from tests.support.simulation import SimRoom
from tests.support.virtual_time import run_virtual

STORM = Weather(delay_s=(0.001, 0.120), loss=0.08, retry_s=0.25, dial_s=(0.05, 2.0))


def expected_ids(split: tuple[int, ...], question: str, most: int, *before: str) -> list[int]:
    """What the devices must say, computed without any network.

    ``before`` are questions of the conversation that got no token of an answer.
    """

    async def generate() -> list[int]:
        bounds = [sum(split[:i]) for i in range(len(split) + 1)]
        shards = [
            make_shard((bounds[i], bounds[i + 1]), context_size=2048, host=i == 0)
            for i in range(len(split))
        ]
        conversation = Conversation(FakeTokenizer())
        conversation.exchanges += [Exchange("host", text) for text in (*before, question)]
        request = GenerationRequest(
            conversation.render(2048), most, Sampling(), frozenset({END_ID})
        )
        result = await answer(
            Trunk(shards[0], InlineCompute(), FakeChain(shards[1:])),
            request,
            draw=lambda: 0.0,
            show=lambda token: None,
            stopped=lambda: False,
            progress=lambda fed, total: None,
        )
        return result.ids

    return run_virtual(generate())


def room_of(count: int, **options):
    """Run ``scenario(room, host, joined devices)`` in an online room of ``count`` devices."""

    def decorate(scenario):
        async def main():
            async with SimRoom(**options) as room:
                host = await room.host()
                joined = [await room.join(f"worker-{i}") for i in range(1, count)]
                await host.until_devices(count - 1)
                await host.start()
                return await scenario(room, host, joined)

        return run_virtual(main())

    return decorate


@pytest.mark.parametrize("seed", range(200))
def test_any_network_gives_the_same_answer(seed):
    """Two questions over a lossy, slow, reordering network, with any number of devices."""
    split = [(12,), (5, 7), (4, 4, 4), (3, 3, 3, 3)][seed % 4]
    question = f"why {seed}?"

    @room_of(len(split), seed=seed, weather=STORM, split=split)
    async def records(room, host, joined):
        asked = [host.ask(question), host.ask("and then?")]
        return await asyncio.gather(*asked)

    first, second = records
    assert first.failure is None
    assert list(first.token_ids) == expected_ids(split, question, 12)
    assert second.failure is None
    assert len(second.token_ids) > 0


def test_the_deal_is_shown_to_everyone():
    @room_of(3)
    async def seen(room, host, joined):
        await asyncio.sleep(1)
        return [room.of(device) for device in [host, *joined]]

    host, *workers = seen
    shares = host.seen(Dealt)[0].shares
    assert [(share.name, share.lo, share.hi) for share in shares] == [
        ("host", 0, 4),
        ("worker-1", 4, 8),
        ("worker-2", 8, 12),
    ]
    assert [event.name for event in host.seen(DeviceJoined)] == ["worker-1", "worker-2"]
    for worker in workers:
        assert [(s.name, s.lo, s.hi) for s in worker.seen(Dealt)[0].shares] == [
            (share.name, share.lo, share.hi) for share in shares
        ]
        assert worker.seen(RoomOnline)


def test_a_guest_asks_and_everyone_sees_the_answer():
    @room_of(3)
    async def outcome(room, host, joined):
        guest = await room.join("guest", holds_layers=False)
        await guest.until_online()
        answered = await guest.ask("what?")
        await asyncio.sleep(1)
        return answered, room.of(guest), room.of(joined[0]), room.of(host)

    answered, guest, worker, host = outcome
    for device in (guest, worker, host):
        assert "".join(event.text for event in device.seen(TokenShown)) == answered.text
    assert guest.seen(AnswerEnded)[0].mine
    assert not worker.seen(AnswerEnded)[0].mine
    assert "tok/s" in answered.stats


def test_a_late_computer_becomes_a_guest_and_gets_the_history():
    @room_of(2)
    async def late(room, host, joined):
        record = await host.ask("first")
        late = await room.join("late", holds_layers=True)
        await late.until_online()
        await late.ask("second")
        return room.of(late), late, record

    late, device, _ = late
    assert device.worker.layers is None
    assert dict(late.seen(Dealt)[0].left_out) == {"late": "late"} or late.seen(RoomOnline)


def test_questions_queue_and_the_asker_hears_its_place():
    @room_of(2)
    async def outcome(room, host, joined):
        guest = await room.join("guest", holds_layers=False)
        await guest.until_online()
        running = host.ask("long one")
        answered = asyncio.ensure_future(guest.ask("mine"))
        await running
        await answered
        return room.of(guest)

    assert outcome.seen(Queued)[0].place == 1


def test_the_queue_refuses_with_a_sentence():
    @room_of(2)
    async def why(room, host, joined):
        for _ in range(3):
            host.ask("again")
        with pytest.raises(AskRefused) as caught:
            host.ask("and again")
        return str(caught.value)

    assert "2 questions" in why


@pytest.mark.parametrize("text", ["", " \n"])
def test_an_empty_question_is_refused_at_once(text):
    @room_of(2)
    async def whys(room, host, joined):
        with pytest.raises(AskFailed) as guest:
            await joined[0].ask(text)
        with pytest.raises(AskRefused) as own:
            host.ask(text)
        with pytest.raises(AskRefused):
            host.ask("a prompt of no token", [])
        return str(guest.value), str(own.value)

    assert whys == ("The question is empty.", "The question is empty.")


def test_a_question_longer_than_any_message_is_cut_as_the_host_would():
    @room_of(2)
    async def why(room, host, joined):
        with pytest.raises(AskFailed) as caught:
            await joined[0].ask("x" * 5_000_000)
        return str(caught.value)

    assert "question is 80" in why
    assert "context holds 2016" in why


def test_who_asks_when_the_room_is_over_is_told_so():
    @room_of(2)
    async def why(room, host, joined):
        guest = await room.join("guest", holds_layers=False)
        await guest.until_online()
        room.of(host).vanish()
        await guest.until_over()
        with pytest.raises(AskFailed) as caught:
            await guest.ask("still there?")
        return str(caught.value)

    assert why.startswith("The host ")


def test_a_device_that_is_early_is_told_what_it_waits_for():
    async def main():
        async with SimRoom() as room:
            await room.host()
            early = await room.join("early")
            await asyncio.sleep(1)
            return room.of(early)

    assert "not online yet" in run_virtual(main()).seen(Notice)[0].text


def test_stop_ends_the_answer_after_the_lap_in_flight():
    @room_of(3, max_tokens=1000, compute_s=0.05)
    async def record(room, host, joined):
        asked = host.ask("endless")
        await asyncio.sleep(5)
        host.stop()
        stopped = await asked
        again = await host.ask("more")
        return stopped, again

    stopped, again = record
    assert stopped.reason == "abort"
    assert 0 < len(stopped.token_ids) < 1000
    assert again.failure is None


def test_a_killed_worker_is_noticed_and_named():
    @room_of(3, max_tokens=1000, compute_s=0.05, redeal_after_s=None)
    async def outcome(room, host, joined):
        asked = host.ask("endless")
        await asyncio.sleep(5)
        room.of(joined[1]).vanish(noticed_after_s=1000)
        await asyncio.sleep(20)
        with pytest.raises(AskRefused, match="worker-2 stopped responding"):
            host.ask("still there?")
        host.stop()
        return await asked, room.of(host)

    record, host = outcome
    assert record.token_ids  # what was shown before stands
    stalled = host.seen(DeviceStalled)
    assert [event.name for event in stalled] == ["worker-2"]
    assert 3.5 < stalled[0].silent_s <= 5.3
    assert host.seen(DeviceLeft)[0].verb == "stopped responding"
    assert "8–11" in host.seen(RoomDegraded)[0].why


def test_a_worker_that_leaves_is_waited_for_at_once():
    @room_of(3, max_tokens=1000, compute_s=0.05)
    async def host(room, host, joined):
        host.ask("endless")
        await asyncio.sleep(5)
        await joined[0].__aexit__(None, None, None)
        await asyncio.sleep(1)
        return room.of(host)

    assert host.seen(DeviceLeft)[0].verb == "left"
    assert host.seen(RoomDegraded)[0].why.startswith("worker-1 left (it held layers 4–7)")
    assert host.seen(AnswerWaits)


def test_guests_are_told_what_the_room_waits_for():
    @room_of(3, max_tokens=1000, compute_s=0.05, redeal_after_s=None)
    async def outcome(room, host, joined):
        guest = await room.join("guest", holds_layers=False)
        await guest.until_online()
        asked = asyncio.ensure_future(guest.ask("endless"))
        await asyncio.sleep(5)
        room.of(joined[0]).vanish()
        await asyncio.sleep(61)
        guest.stop()
        with pytest.raises(AskFailed) as busy:
            await joined[1].ask("again")
        asked.cancel()
        return room.of(guest), str(busy.value)

    guest, busy = outcome
    assert guest.seen(RoomDegraded)[0].why.startswith("worker-1")
    assert "cannot answer without it" in busy


def test_a_device_that_cannot_load_stops_the_start_with_its_reason():
    async def main():
        async with SimRoom() as room:
            host = await room.host()
            await room.join("broken", loader=FakeLoader(fails="no space left"))
            other = await room.join("other")
            await host.until_devices(2)
            with pytest.raises(StartError) as caught:
                await host.start()
            await asyncio.sleep(1)
            assert other.worker.layers is None
            return str(caught.value)

    assert run_virtual(main()) == "broken couldn't load its layers (no space left)"


def test_a_device_that_dies_while_loading_stops_the_start():
    async def main():
        async with SimRoom(load_step_s=10) as room:
            host = await room.host()
            worker = await room.join("worker-1")
            starting = asyncio.ensure_future(host.start())
            await asyncio.sleep(5)
            room.of(worker).vanish(noticed_after_s=15)
            with pytest.raises(StartError) as caught:
                await starting
            return str(caught.value)

    assert run_virtual(main()).startswith("worker-1 lost its connection (it held layers")


def test_pledges_that_do_not_hold_the_model_say_how_much_is_missing():
    async def main():
        async with SimRoom() as room:
            host = await room.host(pledge_gb=0.004)
            await room.join("small", pledge_gb=0.002)
            await host.until_devices(1)
            with pytest.raises(StartError) as caught:
                await host.start()
            return str(caught.value)

    assert "0.1 GB are missing" in run_virtual(main())


def test_no_such_room():
    async def main():
        async with SimRoom() as room:
            with pytest.raises(JoinFailed):
                await room.join("lost")

    run_virtual(main())


def test_a_device_on_another_protocol_version_is_told_which_side_is_older(monkeypatch):
    async def main():
        async with SimRoom() as room:
            await room.host()
            monkeypatch.setattr("poolhouse_node.device.joined.PROTOCOL", 3)
            try:
                # The host's hello may let it in before the host has read its own.
                device = await room.join("old")
            except JoinFailed as failed:
                return str(failed)
            return (await device.until_over()).why

    why = run_virtual(main())
    assert "protocol 4" in why
    assert "3" in why


def test_sampled_answers_follow_the_seed():
    def text(seed: int) -> str:
        @room_of(2, seed=seed, sampling=Sampling(1.0, 40))
        async def record(room, host, joined):
            return await host.ask("surprise me")

        return record.text

    assert text(1) == text(1) != text(2)


@pytest.mark.parametrize(("states", "says"), [(8, 1), (3, 0)])
def test_a_worker_says_whether_it_can_keep_what_a_host_may_save(states, says):
    @dataclass(slots=True)
    class Small(FakeShard):
        saved_states: int = states

    async def main():
        async with SimRoom() as room:
            host = await room.host()
            said = []
            take = host.keeper.take
            host.keeper.take = lambda peer_id, message: (
                said.append(message) or take(peer_id, message)
            )
            await room.join("worker-1", loader=FakeLoader(kind=Small))
            await host.start()
            return [message.ckpt for message in said if isinstance(message, Ready)]

    assert run_virtual(main()) == [says]


def test_devices_that_go_because_the_room_is_closed_are_no_news():
    @room_of(3)
    async def host(room, host, joined):
        await host.close_room("That was it.")
        await asyncio.sleep(5)
        return room.of(host)

    assert not host.seen(RoomDegraded)
    assert not [event for event in host.seen(Notice) if "waiting until" in event.text]
