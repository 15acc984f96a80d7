"""What one role can and cannot do to another, where no other test says it.

The threat model (docs/explanation/threat-model.md) names these tests. Some show what is *not*
stopped: when one of them fails, the page is out of date.
"""

import asyncio

import numpy as np
import pytest

from poolhouse_node.device.entrance import Secrets
from poolhouse_node.device.joined import JoinFailed
from poolhouse_node.room.gate import REFUSALS, Gate
from poolhouse_node.shard import FakeShard
from poolhouse_node.wire.messages.asking import Stop
from poolhouse_node.wire.messages.joining import Bye
from poolhouse_node.wire.messages.loading import Degraded, Redeal, ShareLimit
from poolhouse_node.wire.slices import Control, Frame, Kind
from tests.sim.test_room import expected_ids
from tests.sim.test_strangers import payload
from tests.support.fake_model import FakeLoader
from tests.support.simulation import SimRoom
from tests.support.virtual_time import run_virtual

SPLIT = (4, 4, 4)


def in_room(scenario, *, asks: bool = False, **options):
    """Run ``scenario(room, host)`` in a room that is open, or asks its person."""

    async def main():
        async with SimRoom(**options) as room:
            gate = Gate(room.chance.randbytes, asks=asks)
            return await scenario(room, await room.host(gate=gate))

    return run_virtual(main())


def test_strangers_who_fill_the_lobby_keep_nobody_with_a_link_or_a_pass_out():
    async def scenario(room, host):
        waiting = []
        for number in range(8):
            stranger = await room.join(f"stranger-{number}", wait=False)
            waiting.append(asyncio.ensure_future(stranger.join()))
        await asyncio.sleep(5)
        with pytest.raises(JoinFailed) as caught:
            await room.join("ninth")
        await room.join("friend", secrets=Secrets(key=host.gate.key))
        passes = []
        await room.join("other", secrets=Secrets(key=host.gate.key, changed=passes.append))
        await room.join("back", secrets=Secrets(come_back_pass=passes[0]))
        names = {member.name for member in host.roster.members.values()}
        for join in waiting:
            join.cancel()
        return str(caught.value), names

    said, names = in_room(scenario, asks=True)
    assert said == REFUSALS["full"]
    assert {"friend", "other", "back"} <= names


def test_a_device_that_was_kicked_has_a_pass_no_more_but_the_link_still_counts():
    async def scenario(room, host):
        passes = []
        key = host.gate.key
        await room.join("otter", secrets=Secrets(key=key, changed=passes.append))
        assert host.kick("otter")
        assert room.saved_gates[-1].passes == {}
        await asyncio.sleep(1)
        await room.join("otter", secrets=Secrets(key=key, changed=passes.append))
        assert host.kick("otter")
        host.renew_key()
        await asyncio.sleep(1)
        held = Secrets(key=key, come_back_pass=passes[-1])
        waiting = await room.join("otter", secrets=held, wait=False)
        asking = asyncio.ensure_future(waiting.join())
        await asyncio.sleep(5)
        asking.cancel()
        return [each.name for each in host.doorman.waiting()]

    assert in_room(scenario, asks=True) == ["otter"]


def test_a_guest_stops_no_answer_of_another_and_gives_no_orders():
    async def scenario(room, host):
        workers = [await room.join(f"worker-{i}") for i in (1, 2)]
        guest = await room.join("guest", holds_layers=False)
        await host.until_devices(2)
        await host.start()
        asked = host.ask("why?")
        await asyncio.sleep(0.3)
        to_host = guest.peers[host.network.peer_id]
        orders = [Stop(), Degraded(why="x"), Redeal(by="guest"), ShareLimit(drop=1), Degraded()]
        for order in orders:
            guest.send(to_host, order)
        record = await asked
        assert [worker.worker.layers for worker in workers] == [(4, 8), (8, 12)]
        return record

    record = in_room(scenario, split=SPLIT, max_tokens=60, compute_s=0.03)
    assert record.failure is None
    assert list(record.token_ids) == expected_ids(SPLIT, "why?", 60)


@pytest.mark.parametrize("order", [ShareLimit(drop=1), Bye(reason="go"), Redeal(), Degraded()])
def test_workers_take_orders_from_their_host_only(order):
    async def scenario(room, host):
        workers = [await room.join(f"worker-{i}") for i in (1, 2)]
        await host.until_devices(2)
        await host.start()
        first, second = workers
        before = dict(second.identity.meta)
        await first._neighbours.link_to(second.network.peer_id)
        first.send(first.peers[second.network.peer_id], order)
        await asyncio.sleep(2)
        assert second.identity.meta == before
        return await host.ask("why?")

    record = in_room(scenario, split=SPLIT, max_tokens=20)
    assert list(record.token_ids) == expected_ids(SPLIT, "why?", 20)


class LyingShard(FakeShard):
    """Layers that compute something else."""

    def run(self, hidden, position, *, snapshots=()):
        return np.roll(super().run(hidden, position, snapshots=snapshots), 1)


def test_a_worker_that_computes_something_else_changes_the_text_unnoticed():
    """Not stopped: nobody checks a worker's arithmetic."""

    async def scenario(room, host):
        await room.join("worker-1")
        await room.join("worker-2", loader=FakeLoader(kind=LyingShard))
        await host.until_devices(2)
        await host.start()
        return await host.ask("why?")

    record = in_room(scenario, split=SPLIT, max_tokens=20)
    assert record.failure is None
    assert list(record.token_ids) != expected_ids(SPLIT, "why?", 20)


@pytest.mark.parametrize("in_time", [True, False])
def test_frames_of_a_device_that_was_sent_out_do_not_reach_the_layers(in_time):
    """It keeps the room's mesh key, and its links to others; also when its id looks like a name."""

    async def scenario(room, host):
        outcast = await room.join("outcast", holds_layers=False)
        lookalike = outcast.network.peer_id[:8]
        await room.join(lookalike)
        second = await room.join("z")
        await host.until_devices(2)
        await host.start()
        assert [share.name for share in host.shares] == ["host", lookalike, "z"]
        if in_time:
            await outcast._neighbours.link_to(second.network.peer_id)
        assert host.kick("outcast")
        await asyncio.sleep(1)
        assert second.known.roster.proves(outcast.network.peer_id) is None
        if not in_time:
            await outcast._neighbours.link_to(second.network.peer_id)
        assert second.peers[outcast.network.peer_id].admitted
        asked = host.ask("why?")
        link = outcast.peers[second.network.peer_id].link
        for _ in range(40):
            await asyncio.sleep(0.01)
            link.send_frame(Frame(Kind.HIDDEN, 0, 1, payload(1), control=Control(reset=True)))
        return await asked

    record = in_room(scenario, split=SPLIT, max_tokens=60, compute_s=0.03)
    assert record.failure is None
    assert list(record.token_ids) == expected_ids(SPLIT, "why?", 60)
