"""A liar who knows every id: it calls devices in the names of others (a signaling server can)."""

import asyncio

import pytest

from poolhouse_node.device.entrance import Secrets
from poolhouse_node.device.events import DeviceWaits, DeviceWithdrew
from poolhouse_node.room.proofs import commitment
from tests.sim.test_gate import in_room, joining
from tests.support.simulation import HOST_ID
from tests.support.speaker import speaker_in

GREETING = {"t": "hello", "name": "otter", "v": 4, "join": 1, "auth": 1, "meta": {"webgpu": True}}


def caller_as(room, peer_id: str):
    """Somebody who dials under an id that is another's, which answers to it all the same."""
    network, speaker = speaker_in(room, "caller")
    network._dialer.peer_id = peer_id
    return network, speaker


@pytest.mark.parametrize("says_mesh", [{"none": 1}, {"p": "0" * 64}])
def test_a_device_that_waits_admits_no_other_before_it_is_in_itself(says_mesh):
    async def scenario(room, host):
        first = await room.join("first", secrets=Secrets(key=host.gate.key))
        device, join = await joining(room, "otter")
        await asyncio.sleep(5)
        network, _ = caller_as(room, first.network.peer_id)
        link = await network.dial(device.network.peer_id, timeout_s=10)
        link.send({"t": "hello", "name": "first", "v": 4, "auth": 1})
        link.send({"t": "mesh", "v": 1, **says_mesh})
        await asyncio.sleep(1)
        host.doorman.allow("otter")
        await join
        await asyncio.sleep(15)
        assert not link.is_open
        peer = device.peers.get(first.network.peer_id)
        assert peer is None or not peer.admitted
        await network.close()

    in_room(scenario)


@pytest.mark.parametrize("holds_key", [True, False])
def test_nobody_who_calls_a_device_is_its_host(holds_key):
    """Devices dial their host; whoever dials them in its name wants them in another room."""

    async def scenario(room, host):
        secrets = Secrets(key=host.gate.key) if holds_key else None
        device, join = await joining(room, "otter", secrets=secrets)
        await asyncio.sleep(5)
        host.doorman.allow("otter")
        await join
        key = device.network.mesh.key
        network, speaker = caller_as(room, HOST_ID)
        link = await network.dial(device.network.peer_id, timeout_s=10)
        link.send({"t": "hello", "name": "host", "v": 4})
        link.send({"t": "admit", "mk": "m" * 43})
        await asyncio.sleep(5)
        assert device.network.mesh.key == key
        peer = device.peers.get(HOST_ID)
        assert peer is None or peer.link.dialed or not peer.admitted
        assert {message["t"] for message in speaker.heard} <= {"ping", "leaving"}
        await network.close()

    in_room(scenario)


def test_a_second_link_of_a_waiting_device_is_another_request():
    """What the person saw of the first, its digits, says nothing of the second."""

    async def scenario(room, host):
        device, join = await joining(room, "otter")
        await asyncio.sleep(5)
        shown = room.of(host).seen(DeviceWaits)[0].digits
        network, _ = caller_as(room, device.network.peer_id)
        link = await network.dial(HOST_ID, timeout_s=10)
        await asyncio.sleep(1)
        assert not host.doorman.allow("otter")
        link.send({**GREETING, "jc": commitment("n" * 22)})
        await asyncio.sleep(1)
        assert not host.doorman.allow("otter")
        assert not host.doorman.allow(shown)
        assert list(host.roster.members) == [HOST_ID]
        assert room.of(host).seen(DeviceWithdrew)
        link.send({"t": "auth-proof", "jn": "n" * 22})
        await asyncio.sleep(1)
        again = room.of(host).seen(DeviceWaits)[1]
        assert again.digits != shown
        join.cancel()
        await network.close()

    in_room(scenario)


def test_whoever_does_not_answer_the_challenge_loses_its_place():
    async def scenario(room, host):
        network, _ = speaker_in(room)
        link = await network.dial(HOST_ID, timeout_s=10)
        link.send({**GREETING, "jc": commitment("n" * 22)})
        for _ in range(20):
            await asyncio.sleep(2)
            link.send({"t": "ping", "ts": 1})
        assert not link.is_open
        assert list(host.network.links) == []
        await network.close()

    in_room(scenario)
