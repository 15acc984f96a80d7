"""A device is dealt more than it lends: it refuses, and its host deals what it can hold."""

import asyncio

import pytest

from poolhouse_node.cli.lending import SharedPledge
from poolhouse_node.device.dealing import StartError
from poolhouse_node.device.events import RoomDegraded, StartFailed
from poolhouse_node.room.deal import ModelNeeds
from poolhouse_node.room.pledge import GIB
from tests.sim.test_room import expected_ids
from tests.support import simulation
from tests.support.pledged import PledgedLoader
from tests.support.simulation import SimRoom
from tests.support.virtual_time import run_virtual

CODE = "ABCDEF"
NEEDS = ModelNeeds(layers=12, layer_bytes=GIB, host_bytes=2 * GIB)
"""A layer is a GB: shares are told in GB, to a thousandth."""
HOST_GB = 8.0
"""Two of it are for the embedding, six for layers."""


@pytest.fixture(autouse=True)
def _large_model(monkeypatch):
    monkeypatch.setattr(simulation, "needs", lambda: NEEDS)


class Lender:
    """A device that lends memory for so many layers as its host counts them.

    Here a layer takes ``larger`` times as much.
    """

    def __init__(self, room: SimRoom, name: str, layers: float, larger: float = 1.0) -> None:
        self.room, self.name = room, name
        self.pledge = SharedPledge(layers)
        self.loader = PledgedLoader(
            0.2, budget=self.pledge.room(CODE), layer_bytes=int(GIB * larger)
        )

    async def join(self):
        """Enter the room, and hear what the pledge leaves for it."""
        self.device = await self.room.join(
            self.name, pledge_gb=self.pledge.offer_gb(CODE), loader=self.loader
        )
        self.device.lend(self.pledge.offer_gb(CODE))
        return self.device


def in_a_room(scenario, **options):
    """Run ``scenario(room, host)``; the host lends for six of twelve layers."""

    async def main():
        async with SimRoom(**options) as room:
            return await scenario(room, await room.host(pledge_gb=HOST_GB))

    return run_virtual(main())


def layers(host) -> dict[str, int]:
    return {share.name: share.hi - share.lo for share in host.shares}


def test_a_worker_refuses_layers_beyond_what_it_lends_before_it_loads():
    """By hand a host may deal what it likes; who holds nothing takes nothing."""

    async def scenario(room, host):
        lender = Lender(room, "small", 4)
        device = await lender.join()
        await host.until_devices(1)
        with pytest.raises(StartError) as failed:
            await host.start()
        await asyncio.sleep(1)
        screen = room.of(device).seen(StartFailed)
        assert not host.has_changed  # the same deal would fail again
        return str(failed.value), screen, lender

    why, screen, lender = in_a_room(scenario, split=(4, 8))
    assert why == (
        "small couldn't load its layers (These layers need 8.000 GB of memory; 4.000 GB are left "
        "of what this device lends.)"
    )
    assert [event.why for event in screen] == [why]
    assert lender.loader.loaded == []
    assert lender.pledge.left_bytes() == 4 * GIB


def test_who_finds_layers_larger_than_the_host_does_is_dealt_what_it_can_hold():
    """As a worker in float32 does, in the room of a host with packed weights."""

    async def scenario(room, host):
        lender = Lender(room, "wide", 12, larger=2.5)
        await lender.join()
        await host.until_devices(1)
        with pytest.raises(StartError, match="wide couldn't load its layers"):
            await host.start()
        async with asyncio.timeout(1):
            await host.until_changed()
        await room.join("other", pledge_gb=HOST_GB)
        await host.start()
        return layers(host), lender.pledge.left_bytes(), await host.ask("who?")

    held, left_bytes, record = in_a_room(scenario)
    assert 1 <= held["wide"] <= 4
    assert left_bytes == 12 * GIB - held["wide"] * 2.5 * GIB
    assert list(record.token_ids) == expected_ids(tuple(held.values()), "who?", 12)


def test_it_settles_below_the_pledge_also_where_a_part_takes_more_than_its_layers():
    async def scenario(room, host):
        lender = Lender(room, "wide", 8, larger=1.1)
        lender.loader._size_bytes = lambda layers: (layers[1] - layers[0]) * GIB + 3 * GIB
        await lender.join()
        await room.join("other", pledge_gb=2)
        await host.until_devices(2)
        for refused in range(10):
            try:
                await host.start()
            except StartError:
                assert host.has_changed
            else:
                return refused, layers(host)
        return None

    refused, held = in_a_room(scenario)
    assert refused >= 1
    assert held["wide"] <= 5  # and three GB beside them


def test_a_room_that_is_dealt_again_deals_less_to_it_at_once():
    """Not after the minute that a device has to come back in."""

    async def scenario(room, host):
        other = await room.join("other", pledge_gb=HOST_GB)
        await host.until_devices(1)
        await host.start()
        await Lender(room, "wide", 9, larger=3).join()
        await room.join("third", pledge_gb=2)
        other.lend(2)
        await asyncio.sleep(0.5)
        host.deal_again()
        await asyncio.sleep(1)
        async with asyncio.timeout(20):
            while not host.keeper.is_whole:
                await asyncio.sleep(0.1)
        return room.of(host).seen(RoomDegraded), layers(host)

    degraded, held = in_a_room(scenario)
    assert any("wide couldn't load its layers" in event.why for event in degraded)
    assert 1 <= held["wide"] <= 3


def test_a_room_that_waits_is_dealt_again_as_soon_as_somebody_lends_more():
    async def scenario(room, host):
        other = await room.join("other", pledge_gb=HOST_GB)
        await host.until_devices(1)
        await host.start()
        other.lend(2)
        await asyncio.sleep(0.5)
        host.deal_again()
        await asyncio.sleep(3)
        assert not host.keeper.is_whole
        assert "missing" in room.of(host).seen(RoomDegraded)[-1].why
        other.lend(HOST_GB)
        await asyncio.sleep(3)
        return host.keeper.is_whole

    assert in_a_room(scenario)
