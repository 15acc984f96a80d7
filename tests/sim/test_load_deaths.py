"""Workers that are killed by what they load, in virtual time (liveness, section 9)."""

import asyncio
from dataclasses import dataclass, field

import pytest

from poolhouse_node.cli.load_notebook import LoadNotebook
from poolhouse_node.cli.state import RoomState
from poolhouse_node.device.dealing import StartError
from poolhouse_node.device.events import Dealt, Notice, RoomDegraded
from poolhouse_node.device.load_notes import LoadNotes
from poolhouse_node.room.deal import ModelNeeds
from poolhouse_node.room.pledge import GIB
from tests.sim.test_room import expected_ids
from tests.support import simulation
from tests.support.fake_model import FakeLoader
from tests.support.simulation import SimRoom
from tests.support.virtual_time import run_virtual

NEEDS = ModelNeeds(layers=12, layer_bytes=GIB, host_bytes=2 * GIB)
"""A layer is a GB: shares are told in GB with two decimals."""
SLOW_S = 1.0
"""A step of loading, of which there are four."""
LONG = 400


@pytest.fixture(autouse=True)
def _large_model(monkeypatch):
    monkeypatch.setattr(simulation, "needs", lambda: NEEDS)


@dataclass
class Machines:
    """A room whose workers keep notes, each on a disk of its own that outlives its processes."""

    room: SimRoom
    folder: object
    disks: dict[str, LoadNotebook] = field(default_factory=dict)

    async def join(self, name: str, *, layers: int = 8, step_s: float = 0.2):
        """Start a worker that lends room for so many layers."""
        device = await self.room.join(name, pledge_gb=layers, loader=FakeLoader(step_s), wait=False)
        loop = asyncio.get_running_loop()
        disk = LoadNotebook(RoomState(self.folder / "4TKG9P"), name, loop.time)
        self.disks[name], device._load_notes = disk, LoadNotes(disk)
        await self.room.of(device).spawn(device.join())
        return device

    async def kill_while_loading(self, device) -> None:
        """Wait until it loads, then kill it; it may be noticed late."""
        await self.until(lambda: device.loading)
        await asyncio.sleep(SLOW_S / 2)
        self.kill(device)

    def kill(self, device) -> None:
        self.room.of(device).vanish(1000.0)

    async def until(self, is_so) -> None:
        while not is_so():
            await asyncio.sleep(0.05)


def layers_of(host) -> dict[str, int]:
    return {share.name: share.hi - share.lo for share in host.shares}


def told(room, device) -> list[str]:
    return [event.text for event in room.of(device).seen(Notice) if "was killed" in event.text]


def in_a_room(scenario, tmp_path, *, host_layers: int = 4, **options):
    """Run ``scenario(machines, host)`` in a room of a host and two workers, dealt by memory."""

    async def main():
        async with SimRoom(max_tokens=LONG, compute_s=0.02, **options) as room:
            machines = Machines(room, tmp_path)
            host = await room.host(pledge_gb=2 + host_layers)
            return await scenario(machines, host)

    return run_virtual(main())


def test_a_worker_killed_by_its_layers_gets_fewer(tmp_path):
    async def scenario(machines, host):
        worker = await machines.join("small", step_s=SLOW_S)
        await machines.join("big", layers=12)
        await host.until_devices(2)
        await host.start()
        had = layers_of(host)["small"]
        asked = host.ask("long?")
        await asyncio.sleep(3)
        machines.kill(worker)
        await asyncio.sleep(1)
        reloading = await machines.join("small", step_s=SLOW_S)  # gets its seat, and loads again
        await machines.kill_while_loading(reloading)
        await asyncio.sleep(1)
        third = await machines.join("small")
        record = await asked
        its_share = next((s.lo, s.hi) for s in host.shares if s.name == "small")
        assert third.worker.layers == its_share
        return had, record, third, machines.room.of(third).seen(Notice), host, machines

    had, record, third, notices, host, machines = in_a_room(scenario, tmp_path)
    assert 1 <= layers_of(host)["small"] <= had // 2
    assert third.identity.meta["contribGB"] == had // 2
    assert any(f"killed while it loaded {had} layers" in notice.text for notice in notices)
    assert told(machines.room, host) == told(machines.room, third)
    layers = tuple(layers_of(host).values())
    assert record.failure is None
    assert list(record.token_ids) == expected_ids(layers, "long?", LONG)
    assert machines.disks["small"].death() is None


def test_the_deal_comes_half_a_second_later_and_not_the_old_seat(tmp_path):
    async def scenario(machines, host):
        await machines.join("small")
        await machines.join("big", layers=12)
        await host.until_devices(2)
        await host.start()
        first = next(sim for sim in machines.room.devices if sim.device is not host).device
        machines.kill(first)
        machines.disks["small"].write()  # it had begun to load again
        again = await machines.join("small")
        dealt = machines.room.of(host).seen(Dealt)
        since = asyncio.get_running_loop().time()
        await machines.until(lambda: len(machines.room.of(host).seen(Dealt)) > len(dealt))
        waited_s = asyncio.get_running_loop().time() - since
        return again, waited_s, len(dealt)

    again, waited_s, deals_before = in_a_room(scenario, tmp_path)
    assert deals_before == 1
    # A namesake that may be dead is asked for 1.5 s; the deal settles for half a second.
    assert 0.4 < waited_s < 2.2
    assert again.name == "small"


def test_killed_twice_it_is_left_out_and_may_ask(tmp_path):
    async def scenario(machines, host):
        await machines.join("big", layers=12)
        worker = await machines.join("small", step_s=SLOW_S)
        await host.until_devices(2)
        await host.start()
        machines.kill(worker)
        for _ in range(2):
            worker = await machines.join("small", step_s=SLOW_S)
            await machines.kill_while_loading(worker)
        last = await machines.join("small")
        await last.until_online()
        await machines.until(lambda: host.keeper.is_whole)
        answer = await last.ask("and now?")
        return host, last, answer, told(machines.room, host)

    host, last, answer, words = in_a_room(scenario, tmp_path)
    assert set(layers_of(host)) == {"host", "big"}
    assert not last.identity.meta["webgpu"]
    assert last.worker.layers is None
    assert answer.text
    assert "at most" in words[0]
    assert "dealt no more" in words[1]


def test_the_first_deal_of_a_room_counts_too(tmp_path):
    async def scenario(machines, host):
        await machines.join("big", layers=12)
        worker = await machines.join("small", step_s=SLOW_S)
        await host.until_devices(2)
        starting = asyncio.ensure_future(host.start())
        await machines.kill_while_loading(worker)
        await machines.join("small")
        with pytest.raises(StartError, match="small"):
            await starting
        async with asyncio.timeout(1):
            await host.until_changed()  # it came while the deal was failing
        await host.start()
        return host, told(machines.room, host)

    host, words = in_a_room(scenario, tmp_path)
    assert len(words) == 1
    assert layers_of(host)["small"] >= 1
    assert layers_of(host)["small"] < layers_of(host)["big"]


def test_a_split_said_by_hand_gives_way_to_memory(tmp_path):
    async def scenario(machines, host):
        await machines.join("big", layers=12)
        worker = await machines.join("small", step_s=SLOW_S)
        await host.until_devices(2)
        await host.start()
        assert list(layers_of(host).values()) == [2, 2, 8]
        machines.kill(worker)
        worker = await machines.join("small", step_s=SLOW_S)
        await machines.kill_while_loading(worker)
        await machines.join("small")
        await machines.until(lambda: host.keeper.is_whole)
        return layers_of(host)

    held = in_a_room(scenario, tmp_path, split=(2, 2, 8))
    assert held["small"] <= 4


def test_a_namesake_that_lives_keeps_its_name_and_its_share(tmp_path):
    async def scenario(machines, host):
        await machines.join("big", layers=12)
        worker = await machines.join("small")
        await host.until_devices(2)
        await host.start()
        before = layers_of(host)
        machines.disks["small"].write()
        other = await machines.join("small")
        await asyncio.sleep(5)
        return before, layers_of(host), worker, other, told(machines.room, host)

    before, after, worker, other, words = in_a_room(scenario, tmp_path)
    assert before == after
    assert worker.name == "small"
    assert other.name == "small 2"
    assert not words


def test_a_load_that_ends_well_or_is_given_up_leaves_no_note(tmp_path):
    async def scenario(machines, host):
        await machines.join("big", layers=12)
        worker = await machines.join("small", step_s=SLOW_S)
        await host.until_devices(2)
        starting = asyncio.ensure_future(host.start())
        await machines.until(lambda: worker.loading)
        during = machines.disks["small"].death()
        await starting
        return during, machines.disks["small"].death()

    during, after = in_a_room(scenario, tmp_path)
    assert during.loading
    assert after is None


def test_a_worker_that_is_ended_in_order_while_it_loads_did_not_die(tmp_path):
    async def scenario(machines, host):
        await machines.join("big", layers=12)
        worker = await machines.join("small", step_s=SLOW_S)
        await host.until_devices(2)
        starting = asyncio.ensure_future(host.start())
        await machines.until(lambda: worker.loading)
        await machines.room.of(worker).spawn(worker.__aexit__(None, None, None))
        with pytest.raises(StartError, match="small left"):
            await starting
        return machines.disks["small"].death()

    assert in_a_room(scenario, tmp_path) is None


def test_a_room_that_is_too_small_then_says_so_and_waits_for_another(tmp_path):
    async def scenario(machines, host):
        worker = await machines.join("small", step_s=SLOW_S)
        await host.until_devices(1)
        await host.start()
        machines.kill(worker)
        worker = await machines.join("small", step_s=SLOW_S)
        await machines.kill_while_loading(worker)
        await machines.join("small")
        sim = machines.room.of(host)
        await machines.until(lambda: any("missing" in e.why for e in sim.seen(RoomDegraded)))
        await asyncio.sleep(10)
        assert not host.keeper.is_whole
        await machines.join("big", layers=12)
        await machines.until(lambda: host.keeper.is_whole)
        return layers_of(host)

    held = in_a_room(scenario, tmp_path)
    assert held["small"] <= 4
    assert held["big"] >= 4


def test_a_link_that_breaks_later_does_not_tell_the_death_again(tmp_path):
    async def scenario(machines, host):
        await machines.join("big", layers=12)
        worker = await machines.join("small", step_s=SLOW_S)
        await host.until_devices(2)
        await host.start()
        machines.kill(worker)
        await machines.kill_while_loading(await machines.join("small", step_s=SLOW_S))
        again = await machines.join("small")
        await machines.until(lambda: host.keeper.is_whole)
        before = layers_of(host)
        ends = [machines.room.of(each).dialer.peer_id for each in (host, again)]
        machines.room.net.cut(*ends)
        await asyncio.sleep(20)
        machines.room.net.mend(*ends)
        await asyncio.sleep(40)
        assert host.keeper.is_whole
        return before, layers_of(host), told(machines.room, host)

    before, after, words = in_a_room(scenario, tmp_path)
    assert before == after
    assert len(words) == 1


def test_a_host_that_is_started_again_deals_no_more_to_it(tmp_path):
    async def scenario(machines, host):
        room = machines.room
        await machines.join("big", layers=12)
        worker = await machines.join("small", step_s=SLOW_S)
        await host.until_devices(2)
        await host.start()
        machines.kill(worker)
        await machines.kill_while_loading(await machines.join("small", step_s=SLOW_S))
        await machines.join("small")
        await machines.until(lambda: host.keeper.is_whole)
        await asyncio.sleep(2)  # a second later it is on disk
        limited = layers_of(host)["small"]
        room.of(host).vanish(3.0)
        again = await room.host(pledge_gb=2 + 4, memory=room.memories[-1])
        await again.until_named(["big", "small"], timeout_s=25)
        await again.start()
        return limited, layers_of(again), told(room, again)

    limited, held, words = in_a_room(scenario, tmp_path)
    assert 1 <= held["small"] <= limited
    assert words == []


def test_a_death_that_its_host_did_not_live_to_hear_of_counts_for_the_next(tmp_path):
    async def scenario(machines, host):
        room = machines.room
        await machines.join("big", layers=12)
        worker = await machines.join("small")
        await host.until_devices(2)
        await host.start()
        await asyncio.sleep(2)
        had = layers_of(host)["small"]
        machines.kill(worker)
        room.of(host).vanish(3.0)
        machines.disks["small"].write()  # it had begun to load again
        again = await room.host(pledge_gb=2 + 4, memory=room.memories[-1])
        await machines.join("small")
        await again.until_named(["big", "small"], timeout_s=25)
        await again.start()
        return had, layers_of(again), told(room, again)

    had, held, words = in_a_room(scenario, tmp_path)
    assert 1 <= held["small"] <= had // 2
    assert len(words) == 1
