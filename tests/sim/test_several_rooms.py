"""One device in two rooms: turns, one pledge, and fates that do not touch."""

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from poolhouse_node.cli.lending import SharedPledge
from poolhouse_node.device.dealing import StartError
from poolhouse_node.device.device import Device
from poolhouse_node.device.events import DeviceStalled, LoadProgress, RoomOver, StartFailed
from poolhouse_node.device.host import Host
from poolhouse_node.device.joined import JoinedDevice
from poolhouse_node.device.turns import Turns
from poolhouse_node.room.lending import LEAST_OFFER_GB
from tests.sim.test_room import expected_ids
from tests.support.fake_model import InlineCompute
from tests.support.pledged import LAYER_BYTES, PledgedLoader
from tests.support.simulation import SimRoom
from tests.support.virtual_time import run_virtual

SPLIT = (4, 8)
GIB = 1 << 30
LONG = 300


@dataclass
class Both:
    """Two rooms with a host each, and the device that is in both."""

    rooms: dict[str, SimRoom]
    pledge: SharedPledge
    turns: Turns
    hosts: dict[str, Host] = field(default_factory=dict)
    devices: dict[str, JoinedDevice] = field(default_factory=dict)

    async def open(self, name: str, *, pledge_gb: float = 1.0) -> Host:
        """A room's host, and the device's seat with it."""
        self.hosts[name] = await self.rooms[name].host(pledge_gb=pledge_gb)
        await self.enter(name)
        await self.hosts[name].until_devices(1)
        return self.hosts[name]

    async def enter(self, name: str) -> JoinedDevice:
        loader = PledgedLoader(0.2, budget=self.pledge.room(name), model=name)
        device = self.devices[name] = await self.rooms[name].join(
            "shared",
            loader=loader,
            pledge_gb=self.pledge.offer_gb(name),
            compute=self.turns.for_room(),
        )
        return device

    def tell(self, name: str):
        return self.pledge.telling(name, self.devices[name].lend)

    def lent(self, name: str) -> float:
        """What the host believes that the device lends it."""
        members = self.hosts[name].roster.members.values()
        return next(member.pledge_gb for member in members if member.name == "shared")

    def of(self, name: str, device: Device):
        return self.rooms[name].of(device)


@asynccontextmanager
async def both_rooms(*, pledge_gb: float = 1.0, frame_s: float = 0.02, **options):
    chosen = {"split": SPLIT, "max_tokens": LONG, **options}
    async with SimRoom(seed=1, **chosen) as a, SimRoom(seed=2, **chosen) as b:
        pledge, turns = SharedPledge(pledge_gb), Turns(InlineCompute(lambda: frame_s))
        yield Both({"A": a, "B": b}, pledge, turns)
        for sim in (*a.devices, *b.devices):  # one process: neither may end before the other
            sim.bury()


async def online(both: Both) -> None:
    for name in both.rooms:
        host = await both.open(name)
        await host.start()


def same_as_alone(record, question: str) -> None:
    assert record.failure is None
    assert list(record.token_ids) == expected_ids(SPLIT, question, LONG)


def test_two_rooms_are_answered_at_once_and_each_as_if_it_were_alone():
    async def main():
        async with both_rooms() as both:
            await online(both)
            asked = [host.ask(f"of {name}?") for name, host in both.hosts.items()]
            return await asyncio.gather(*asked)

    for name, record in zip("AB", run_virtual(main()), strict=True):
        same_as_alone(record, f"of {name}?")


def answered_after_s(*names: str) -> list[float]:
    """The same question in these rooms at the same time."""

    async def main():
        loop, times = asyncio.get_running_loop(), {}
        async with both_rooms() as both:
            await online(both)
            begun_at, asked = loop.time(), []
            for name in names:
                asked.append(both.hosts[name].ask("how long?"))
                asked[-1].add_done_callback(
                    lambda _, name=name: times.setdefault(name, loop.time() - begun_at)
                )
            return await asyncio.gather(*asked), [times[name] for name in names]

    records, times = run_virtual(main())
    for record in records:
        same_as_alone(record, "how long?")
    return times


def test_rooms_get_the_same_share_of_the_device():
    """Each is slowed down by the other as much: neither waits for more than a frame of it."""
    (alone,) = answered_after_s("A")
    together = answered_after_s("A", "B")
    assert together[0] == pytest.approx(together[1], rel=0.05)
    assert alone < max(together) < 2 * alone


async def answer_in_b_while(both: Both, disturb) -> object:
    """Ask B a long question, let something happen to A meanwhile, give B's record."""
    await online(both)
    asked = both.hosts["B"].ask("long?")
    await asyncio.sleep(2)
    assert not asked.done()
    await disturb(both)
    return await asked


async def close_room(both):
    await both.hosts["A"].close_room("That was all.")


async def send_out(both):
    assert both.hosts["A"].kick("shared")


async def kill_host(both):
    both.of("A", both.hosts["A"]).vanish(0.5)


async def deal_again(both):
    asked = both.hosts["A"].ask("short?")
    both.hosts["A"].stop()
    await asked
    both.hosts["A"].deal_again()


async def lose_the_layers(both):
    await both.devices["A"].worker.close()


FATES = [close_room, send_out, kill_host, deal_again, lose_the_layers]


@pytest.mark.parametrize("disturb", FATES, ids=lambda fate: fate.__name__)
def test_what_happens_in_one_room_does_not_touch_the_other(disturb):
    async def main():
        async with both_rooms() as both:
            record = await answer_in_b_while(both, disturb)
            assert not both.of("B", both.devices["B"]).seen(RoomOver)
            assert not both.of("B", both.hosts["B"]).seen(DeviceStalled)
            return record

    same_as_alone(run_virtual(main()), "long?")


def test_a_slow_load_for_one_room_does_not_stall_the_other():
    async def main():
        async with both_rooms(load_step_s=2.0) as both:
            await (await both.open("B")).start()
            asked = both.hosts["B"].ask("long?")
            await (await both.open("A")).start()
            assert not asked.done()
            record = await asked
            assert not both.of("B", both.hosts["B"]).seen(DeviceStalled)
            return record

    same_as_alone(run_virtual(main()), "long?")


class TestThePledge:
    """Of 8.5 MiB the first room takes 8: what is left holds no layer."""

    PLEDGE_GB = 8.5 * LAYER_BYTES / GIB

    def test_a_host_is_offered_what_the_other_rooms_left(self):
        async def main():
            async with both_rooms(pledge_gb=self.PLEDGE_GB) as both:
                await both.open("A")
                await both.open("B")
                with both.tell("A"), both.tell("B"):
                    before = both.lent("A"), both.lent("B")
                    await both.hosts["A"].start()
                    await asyncio.sleep(1)
                    return before, both.lent("A"), both.lent("B")

        before, a_gb, b_gb = run_virtual(main())
        assert before == (0.008, 0.008)
        assert a_gb == 0.008
        assert b_gb == LEAST_OFFER_GB

    def test_a_deal_beyond_it_fails_with_a_sentence_and_works_once_the_other_room_is_over(self):
        async def main():
            async with both_rooms(pledge_gb=self.PLEDGE_GB) as both:
                await both.open("A")
                await both.open("B")
                with both.tell("A"), both.tell("B"):
                    await both.hosts["A"].start()
                    with pytest.raises(StartError, match="left of what this device lends"):
                        await both.hosts["B"].start()
                    await asyncio.sleep(1)
                    assert both.of("B", both.devices["B"]).seen(StartFailed)
                    first = await both.hosts["A"].ask("still there?")
                    changed = asyncio.ensure_future(both.hosts["B"].until_changed())
                    await asyncio.sleep(1)
                    assert not changed.done()
                    await both.hosts["A"].close_room("That was all.")
                    await changed
                    assert both.lent("B") == 0.008
                    await both.hosts["B"].start()
                    return first, await both.hosts["B"].ask("now?")

        first, second = run_virtual(main())
        same_as_alone(first, "still there?")
        same_as_alone(second, "now?")

    def test_deals_by_memory_leave_the_device_out_while_nothing_is_left(self):
        async def main():
            async with both_rooms(pledge_gb=self.PLEDGE_GB, split=None) as both:
                await both.open("A", pledge_gb=0.006)
                await both.open("B")
                with both.tell("A"), both.tell("B"):
                    await both.hosts["A"].start()
                    await asyncio.sleep(1)
                    await both.hosts["B"].start()
                    shares = [[s.name for s in both.hosts[name].shares] for name in "AB"]
                    return shares, both.pledge.left_bytes()

        shares, left_bytes = run_virtual(main())
        assert shares == [["host", "shared"], ["host"]]
        assert left_bytes >= 0


def test_a_process_that_is_started_again_takes_up_both_seats():
    async def main():
        async with both_rooms() as both:
            await online(both)
            asked = {name: host.ask("long?") for name, host in both.hosts.items()}
            await asyncio.sleep(2)
            for name in both.rooms:
                both.of(name, both.devices[name]).vanish(0.5)
            await asyncio.sleep(3)
            both.pledge = SharedPledge(1.0)
            both.turns = Turns(InlineCompute(lambda: 0.02))
            for name in both.rooms:
                await both.enter(name)
            records = [await asked[name] for name in both.rooms]
            loads = [both.of(name, both.devices[name]).seen(LoadProgress) for name in both.rooms]
            return records, loads

    records, loads = run_virtual(main())
    for record in records:
        same_as_alone(record, "long?")
    assert all(len(seen) <= 1 for seen in loads)
