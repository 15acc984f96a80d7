"""Anything at the gate: no crash, and nobody gets in who proved nothing."""

import asyncio

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poolhouse_node.device.events import DeviceJoined
from poolhouse_node.room.gate import Gate
from tests.support.simulation import HOST_ID, SimRoom
from tests.support.speaker import speaker_in
from tests.support.virtual_time import run_virtual

pytestmark = pytest.mark.slow

NAMES = ["hello", "auth", "auth-proof", "admit", "lobby", "mesh", "roster", "ai-load", "bye"]
GATE_FIELDS = [
    "name",
    "v",
    "meta",
    "auth",
    "join",
    "jc",
    "kc",
    "pid",
    "back",
    "key",
    "pass",
    "gate",
    "ask",
    "hn",
    "jn",
    "kp",
    "pp",
    "via",
    "hp",
    "mk",
]
ROOM_FIELDS = ["p", "none", "members", "range", "model", "next", "host"]
FIELDS = GATE_FIELDS + ROOM_FIELDS
HEX = st.text("0123456789abcdef", min_size=64, max_size=64)
SECRET = st.text("abcABC012-_", min_size=22, max_size=43)
VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-2, 5),
    st.floats(-1e9, 1e9),
    st.text(max_size=30),
    HEX,
    SECRET,
    st.binary(max_size=20),
    st.lists(st.integers(0, 3), max_size=3),
    st.dictionaries(st.sampled_from(["id", "name", "meta", "a"]), st.text(max_size=5), max_size=3),
)
MESSAGES = st.builds(
    lambda name, fields: {"t": name, **fields},
    st.sampled_from(NAMES),
    st.dictionaries(st.sampled_from(FIELDS), VALUES, max_size=8),
)
HELLO = {"t": "hello", "name": "eve", "v": 4, "join": 1, "auth": 1, "jc": "0" * 64, "kc": 1}


fuzz = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow], deadline=None)


@fuzz
@given(st.lists(MESSAGES, max_size=12), st.booleans(), st.booleans())
def test_nothing_said_to_a_host_gets_anyone_in(messages, greets_well, takes_older):
    async def main():
        async with SimRoom() as room:
            gate = Gate(room.chance.randbytes, takes_raw_secrets=takes_older)
            host = await room.host(gate=gate)
            network, speaker = speaker_in(room)
            link = await network.dial(HOST_ID, timeout_s=10)
            for message in [HELLO, *messages] if greets_well else messages:
                link.send(message)
            await asyncio.sleep(20)
            assert room.of(host).seen(DeviceJoined) == []
            assert list(host.roster.members) == [HOST_ID]
            said = {message["t"] for message in speaker.heard}
            assert said <= {"hello", "auth", "lobby", "bye", "ping", "pong"}
            assert not host.tasks.failure.done()
            await network.close()

    run_virtual(main())


@fuzz
@given(st.lists(MESSAGES, max_size=12))
def test_nothing_a_false_host_says_lets_a_device_with_a_key_in(messages):
    from poolhouse_node.device.entrance import Secrets

    async def main():
        async with SimRoom() as room:
            network, speaker = speaker_in(room, HOST_ID)
            device = await room.join("otter", secrets=Secrets(key="k" * 22), wait=False)
            joining = asyncio.ensure_future(device.join())
            await asyncio.sleep(5)
            for link in list(network.links.values()):
                for message in messages:
                    link.send(message)
            await asyncio.sleep(60)
            assert not device.network.mesh.key
            assert not any(peer.admitted for peer in device.peers.values())
            assert "k" * 22 not in str(speaker.heard)
            assert not device.tasks.failure.done()
            joining.cancel()
            await asyncio.gather(joining, return_exceptions=True)
            await network.close()

    run_virtual(main())


@fuzz
@given(st.lists(MESSAGES, max_size=12))
def test_nothing_said_to_a_worker_admits_a_stranger(messages):
    async def main():
        async with SimRoom() as room:
            await room.host()
            worker = await room.join("worker")
            network, _ = speaker_in(room)
            link = await network.dial(worker.network.peer_id, timeout_s=10)
            for message in messages:
                link.send(message)
            await asyncio.sleep(20)
            stranger = worker.peers.get(network.peer_id)
            assert stranger is None or not stranger.admitted
            assert worker.worker.layers is None
            assert not worker.tasks.failure.done()
            await network.close()

    run_virtual(main())


@pytest.mark.long
@settings(max_examples=20_000, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(MESSAGES, max_size=20), st.booleans(), st.booleans())
def test_nothing_said_to_a_host_gets_anyone_in_for_long(messages, greets_well, takes_older):
    once = test_nothing_said_to_a_host_gets_anyone_in.hypothesis.inner_test
    once(messages, greets_well, takes_older)
