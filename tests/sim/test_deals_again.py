"""Deals that meet other deals, arrivals and slow devices; stops that meet silence."""

import asyncio

import pytest

from poolhouse_node.device.events import Dealt, DeviceStalled, Notice, RoomMended
from poolhouse_node.room.asks import AskRefused
from tests.sim.test_recovery import disturbed, same_as_undisturbed
from tests.sim.test_room import expected_ids
from tests.support.simulation import SimRoom
from tests.support.virtual_time import run_virtual


def test_a_second_redeal_while_the_layers_load_changes_nothing():
    async def redeal_twice(room, host, workers):
        room.of(workers[1]).vanish(0.5)
        await asyncio.sleep(5)
        host.deal_again()
        await asyncio.sleep(1)
        assert host.keeper.is_dealing
        with pytest.raises(AskRefused, match="dealt already"):
            host.deal_again()
        host.keeper.deal_soon()  # as for a device whose share was lowered
        while not room.of(host).seen(RoomMended):
            await asyncio.sleep(0.5)
        assert host.status()["waits_for"] is None
        assert host.keeper.is_whole

    record, room, host = disturbed(redeal_twice, load_step_s=2.0)
    same_as_undisturbed(record)
    assert len(room.of(host).seen(Dealt)) == 2


def test_who_joins_during_a_deal_does_not_make_the_next_loss_deal_at_once():
    async def join_meanwhile(room, host, workers):
        room.of(workers[1]).vanish(0.5)
        await asyncio.sleep(5)
        host.deal_again()
        await asyncio.sleep(1)
        late = await room.join("late")
        while not room.of(host).seen(RoomMended):
            await asyncio.sleep(0.5)
        room.of(workers[0]).vanish(0.5)
        await asyncio.sleep(30)
        assert len(room.of(host).seen(Dealt)) == 2
        assert host.status()["waits_for"]["deal_in_s"] is None
        assert late.worker.layers is None
        await room.join("worker-1")

    record, _, _ = disturbed(join_meanwhile, load_step_s=2.0, redeal_after_s=None)
    same_as_undisturbed(record)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("how", ["kick", "redeal"])
def test_a_deal_while_the_host_computes_for_long(how, seed):
    """A frame that was being computed for the former chain is never sent into the new one."""

    async def main():
        options = {"split": (6, 6), "max_tokens": 30, "compute_s": 1.0}
        async with SimRoom(seed=seed, **options) as room:
            host = await room.host()
            await room.join("worker-1")
            await room.join("worker-2")
            await host.until_devices(2)
            await host.start()
            asked = host.ask("slow?")
            await asyncio.sleep(3.0 + seed * 0.4)
            if how == "kick":
                host.kick("worker-1")
            else:
                host.keeper.deal_soon()
            record = await asked
            assert not host.tasks.failure.done()
            return record

    record = run_virtual(main())
    assert record.failure is None
    assert list(record.token_ids) == expected_ids((6, 6), "slow?", 30)


def test_a_stop_does_not_wait_for_a_silent_device():
    async def stop_while_held(room, host, workers):
        room.of(workers[0]).freeze()
        while not room.of(host).seen(DeviceStalled):
            await asyncio.sleep(0.1)
        waits = host.status()["waits_for"]
        assert waits["what"] == "waiting for a sign of worker-1"
        before = asyncio.get_running_loop().time()
        host.stop()
        while host.status()["state"] == "answering":
            await asyncio.sleep(0.1)
        assert asyncio.get_running_loop().time() - before < 1.0
        room.of(workers[0]).thaw()

    record, _, _ = disturbed(stop_while_held)
    assert record.reason == "abort"
    assert record.token_ids


def test_a_stop_in_the_moment_of_the_question_counts():
    async def main():
        async with SimRoom(max_tokens=300) as room:
            host = await room.host()
            await room.join("worker-1")
            await host.until_devices(1)
            await host.start()
            asked = host.ask("never mind")
            host.stop()
            first = await asked
            second = await host.ask("and this?")
            return first, second

    first, second = run_virtual(main())
    assert first.reason == "abort"
    assert len(second.token_ids) > 1


def test_a_link_between_workers_heals_however_long_it_was_cut():
    async def cut_for_long(room, host, workers):
        ids = [room.of(worker).dialer.peer_id for worker in workers]
        room.net.cut(*ids)
        await asyncio.sleep(320)
        assert "the link from worker-1 to worker-2" in host.status()["state"]
        assert any("waiting until the link is back" in n.text for n in room.of(host).seen(Notice))
        room.net.mend(*ids)
        await asyncio.sleep(90)
        assert host.status()["waits_for"] is None

    record, _, _ = disturbed(cut_for_long, redeal_after_s=None)
    assert record.failure is None or "worker-" in record.failure
