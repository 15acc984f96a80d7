"""Rooms that lose devices, links and their host, in virtual time (liveness, sections 5 to 11)."""

import asyncio

import pytest

from poolhouse_node.device.events import (
    AnswerEnded,
    AnswerWaits,
    Dealt,
    DeviceStalled,
    HostFound,
    HostLost,
    RoomDegraded,
    RoomMended,
    RoomOver,
    TokenShown,
)
from poolhouse_node.room.asks import AskRefused
from tests.sim.test_room import expected_ids
from tests.support.simulation import SimRoom
from tests.support.virtual_time import run_virtual

SPLIT = (4, 4, 4)
LONG = 400
"""Tokens of an answer that is disturbed: about 20 s of it are left after the first ones."""


def disturbed(scenario, *, after_s: float = 5.0, **options):
    """Ask a long question in a room of three, disturb it, return the record and the room."""

    async def main():
        chosen = {"split": SPLIT, "max_tokens": LONG, "compute_s": 0.02} | options
        async with SimRoom(**chosen) as room:
            host = await room.host()
            workers = [await room.join(f"worker-{i}") for i in (1, 2)]
            await host.until_devices(2)
            await host.start()
            asked = host.ask("long?")
            await asyncio.sleep(after_s)
            assert not asked.done()
            await scenario(room, host, workers)
            return await asked, room, host

    return run_virtual(main())


def same_as_undisturbed(record) -> None:
    assert record.failure is None
    assert list(record.token_ids) == expected_ids(SPLIT, "long?", LONG)


@pytest.mark.parametrize("after_s", [0.1, 5.0])
@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("noticed_after_s", [0.5, 17.0, 1000.0])
def test_a_killed_worker_that_is_started_again_gets_its_seat(which, noticed_after_s, after_s):
    async def kill_and_restart(room, host, workers):
        room.of(workers[which]).vanish(noticed_after_s)
        await asyncio.sleep(5)
        await room.join(f"worker-{which + 1}")

    record, room, host = disturbed(kill_and_restart, after_s=after_s)
    same_as_undisturbed(record)
    assert [share.name for share in host.shares] == ["host", "worker-1", "worker-2"]
    assert len(room.of(host).seen(Dealt)) == 1  # nobody else had to load anything
    assert room.of(host).seen(AnswerWaits)


def test_two_workers_at_once():
    async def kill_both(room, host, workers):
        for worker in workers:
            room.of(worker).vanish(17.0)
        await asyncio.sleep(5)
        await room.join("worker-1")
        await room.join("worker-2")

    record, _, _ = disturbed(kill_both)
    same_as_undisturbed(record)


@pytest.mark.parametrize("order", [("worker-2", "worker-1"), ("worker-1", "worker-2")])
def test_two_workers_one_after_the_other(order):
    async def kill_both(room, host, workers):
        for worker in workers:
            room.of(worker).vanish(17.0)
        for name in order:
            await asyncio.sleep(10)
            await room.join(name)

    record, _, _ = disturbed(kill_both)
    same_as_undisturbed(record)


@pytest.mark.parametrize("frozen_s", [4.0, 12.0, 20.0])
@pytest.mark.parametrize("which", [0, 1])
def test_a_frozen_worker_goes_on(which, frozen_s):
    async def freeze(room, host, workers):
        sim = room.of(workers[which])
        sim.freeze()
        await asyncio.sleep(frozen_s)
        sim.thaw()

    record, room, host = disturbed(freeze)
    same_as_undisturbed(record)
    assert [event.name for event in room.of(host).seen(DeviceStalled)] == [f"worker-{which + 1}"]
    assert len(room.of(host).seen(Dealt)) == 1


@pytest.mark.parametrize("cut_s", [5.0, 40.0])
@pytest.mark.parametrize("pair", [(1, 2), (0, 1), (0, 2)])
def test_a_cut_link_is_dialed_again(pair, cut_s):
    async def cut(room, host, workers):
        ends = [room.of([host, *workers][i]).dialer.peer_id for i in pair]
        room.net.cut(*ends)
        await asyncio.sleep(cut_s)
        room.net.mend(*ends)

    record, _, host = disturbed(cut)
    same_as_undisturbed(record)
    assert [share.name for share in host.shares] == ["host", "worker-1", "worker-2"]


def test_a_worker_that_never_returns_is_dealt_around():
    async def kill(room, host, workers):
        room.of(workers[1]).vanish(17.0)
        before = asyncio.get_running_loop().time()
        while not room.of(host).seen(RoomMended):
            await asyncio.sleep(0.5)
        assert 70 < asyncio.get_running_loop().time() - before < 85  # noticed after 15 to 17.5 s

    record, _, host = disturbed(kill)
    same_as_undisturbed(record)
    assert [share.name for share in host.shares] == ["host", "worker-1"]


def test_without_automatic_deals_the_room_waits_says_so_and_stop_works():
    async def kill_and_stop(room, host, workers):
        room.of(workers[1]).vanish(17.0)
        await asyncio.sleep(200)
        assert len(room.of(host).seen(Dealt)) == 1
        waits = host.status()["waits_for"]
        assert waits["what"] == "waiting for worker-2 (layers 8–11) to return"
        assert waits["since_s"] > 150
        assert waits["deal_in_s"] is None
        assert "automatic re-deal is off" in room.of(host).seen(RoomDegraded)[0].why
        with pytest.raises(AskRefused, match="worker-2"):
            host.ask("anyone?")
        host.stop()

    record, _, _ = disturbed(kill_and_stop, redeal_after_s=None)
    assert record.reason == "abort"
    assert record.token_ids


def test_a_worker_under_its_name_from_another_process_while_the_old_one_is_frozen():
    async def replace(room, host, workers):
        frozen = room.of(workers[1])
        frozen.freeze()
        await asyncio.sleep(6)
        newcomer = await room.join("worker-2")
        await asyncio.sleep(4)
        assert newcomer.name == "worker-2"
        assert newcomer.worker.layers == (8, 12)
        frozen.thaw()
        await asyncio.sleep(10)
        assert workers[1].name == "worker-2 2"
        assert workers[1].worker.layers is None

    record, _, _ = disturbed(replace)
    same_as_undisturbed(record)


def test_signaling_may_be_away_meanwhile():
    async def trouble(room, host, workers):
        room.net.set_signaling(False)
        room.net.cut(*(room.of(each).dialer.peer_id for each in workers))
        await asyncio.sleep(5)
        room.net.mend(*(room.of(each).dialer.peer_id for each in workers))
        await asyncio.sleep(25)
        room.net.set_signaling(True)

    record, _, _ = disturbed(trouble)
    same_as_undisturbed(record)


def test_a_host_that_is_started_again_goes_on_where_it_was():
    async def main():
        async with SimRoom(split=SPLIT, max_tokens=LONG, compute_s=0.02) as room:
            host = await room.host()
            workers = [await room.join(f"worker-{i}") for i in (1, 2)]
            guest = await room.join("guest", holds_layers=False)
            await host.until_devices(2)
            await host.start()
            await guest.until_online()
            asked = asyncio.ensure_future(guest.ask("long?"))
            await asyncio.sleep(6)
            room.of(host).vanish(17.0)
            kept = room.memories[-1]
            assert kept.running is not None
            assert kept.running.shown_ids
            await asyncio.sleep(3)
            again = await room.host(memory=kept)
            await again.until_named([seat.name for seat in kept.seats], timeout_s=25)
            await again.until_devices(2)
            await again.start()
            answer = await asked
            return answer, room.of(guest), [room.of(each) for each in workers]

    answer, guest, workers = run_virtual(main())
    expected = expected_ids(SPLIT, "long?", LONG)
    text = "".join(f"<{token}>" for token in expected)
    assert answer.text == text
    assert "".join(event.text for event in guest.seen(TokenShown)) == text
    assert [bool(each.seen(HostLost)) for each in [guest, *workers]] == [True] * 3
    assert [bool(each.seen(HostFound)) for each in [guest, *workers]] == [True] * 3
    assert not guest.seen(RoomOver)


def test_a_guest_that_loses_its_link_gets_the_whole_answer():
    async def main():
        async with SimRoom(split=SPLIT, max_tokens=LONG, compute_s=0.02) as room:
            host = await room.host()
            for i in (1, 2):
                await room.join(f"worker-{i}")
            guest = await room.join("guest", holds_layers=False)
            await host.until_devices(2)
            await host.start()
            await guest.until_online()
            asked = asyncio.ensure_future(guest.ask("long?"))
            await asyncio.sleep(5)
            ids = room.of(host).dialer.peer_id, room.of(guest).dialer.peer_id
            room.net.cut(*ids)
            await asyncio.sleep(18)
            room.net.mend(*ids)
            return (await asked).text, room.of(guest), room.of(host)

    text, guest, host = run_virtual(main())
    assert text == "".join(f"<{token}>" for token in expected_ids(SPLIT, "long?", LONG))
    assert "".join(event.text for event in guest.seen(TokenShown)) == text
    assert not host.seen(AnswerEnded)[0].failure


def test_a_room_whose_host_never_returns_is_over_after_a_while():
    async def main():
        async with SimRoom() as room:
            host = await room.host()
            worker = await room.join("worker-1")
            await host.until_devices(1)
            await host.start()
            room.of(host).vanish(17.0)
            end = await worker.until_over()
            await asyncio.sleep(1)
            return end, worker.worker.layers

    end, layers = run_virtual(main())
    assert "did not come back" in end.why
    assert layers is None
