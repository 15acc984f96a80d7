"""Right exchanges with something wrong in them: whatever it is, nobody gets in by them."""

import asyncio

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from poolhouse_node.device.entrance import Secrets
from poolhouse_node.device.events import DeviceJoined
from poolhouse_node.device.joined import JoinFailed
from poolhouse_node.room.gate import Gate
from poolhouse_node.room.joining import Joiner
from poolhouse_node.room.proofs import Transcript, mesh_proof
from poolhouse_node.rtc.connection import STRIPE_LABEL
from poolhouse_node.wire.messages import parse, to_map
from tests.sim.test_gate_fuzz import VALUES
from tests.support.simulation import HOST_ID, SimRoom
from tests.support.speaker import speaker_in
from tests.support.virtual_time import run_virtual

pytestmark = pytest.mark.slow

fuzz = settings(max_examples=100, suppress_health_check=[HealthCheck.too_slow], deadline=None)
KEY = "k" * 22
HOST_HELLO = {"t": "hello", "name": "attic", "v": 4, "auth": 1, "gate": 1, "ask": 1}

EDITS = st.one_of(
    st.tuples(st.just("flip"), st.integers(0, 63), st.sampled_from("0123456789abcdefABCDEF-_")),
    st.tuples(st.just("cut"), st.integers(0, 63), st.just("")),
    st.tuples(st.just("add"), st.integers(0, 64), st.sampled_from(["0", "\n", " ", "é"])),
)


def edited(text: str, edit: tuple[str, int, str]) -> str:
    kind, at, new = edit
    at = min(at, len(text))
    return text[:at] + new + text[at + (kind != "add") :]


CHANGES = st.one_of(EDITS, VALUES.map(lambda value: ("set", value)))


def change(message: dict, field: str, how: tuple) -> dict:
    """The message with one field that is not what it was."""
    before = message.get(field)
    after = how[1] if how[0] == "set" else edited(str(before or ""), how)
    assume(after != before)
    return message | {field: after}


def in_virtual_room(scenario, **gate):
    async def main():
        async with SimRoom() as room:
            await scenario(room, await room.host(gate=Gate(room.chance.randbytes, **gate)))

    run_virtual(main())


async def heard(speaker, *types: str) -> dict:
    """The first message of one of these types."""
    async with asyncio.timeout(60):
        while True:
            for message in speaker.heard:
                if message["t"] in types:
                    return message
            await asyncio.sleep(0.1)


@fuzz
@given(st.sampled_from(["jc", "auth", "kc", "kp", "jn"]), CHANGES)
def test_a_proof_with_a_flaw_lets_nobody_in(field, how):
    async def scenario(room, host):
        network, speaker = speaker_in(room)
        link = await network.dial(HOST_ID, timeout_s=10)
        joiner = Joiner(room.chance.randbytes, network.peer_id, HOST_ID, key=host.gate.key)
        hello = {"t": "hello", "name": "eve", "v": 4, "join": 1} | joiner.hello_fields()
        if field in hello:
            # Another number of 1 or more says the same.
            assume(not (field == "auth" and how[0] == "set" and isinstance(how[1], int | float)))
            hello = change(hello, field, how)
        link.send(hello)
        said = await heard(speaker, "auth", "lobby", "bye")
        if said["t"] == "auth":
            proof = to_map(joiner.answer(parse(said), link.binding()))
            link.send(change(proof, field, how) if field in proof else proof)
        await asyncio.sleep(5)
        admitted = [event.name for event in room.of(host).seen(DeviceJoined)]
        proved = field == "auth" and said["t"] == "auth"
        assert admitted == (["eve"] if proved else [])
        assert not host.tasks.failure.done()
        await network.close()

    in_virtual_room(scenario)


@fuzz
@given(st.sampled_from(["via", "hp"]), CHANGES)
def test_a_host_whose_proof_has_a_flaw_gets_no_device(field, how):
    async def main():
        async with SimRoom() as room:
            network, speaker = speaker_in(room, HOST_ID)
            device = await room.join("otter", secrets=Secrets(key=KEY), wait=False)
            joining = asyncio.ensure_future(device.join())
            await asyncio.sleep(1)
            (link,) = network.links.values()
            link.send(HOST_HELLO)
            await heard(speaker, "hello")
            link.send({"t": "auth", "v": 1, "hn": "h" * 22})
            nonce = (await heard(speaker, "auth-proof"))["jn"]
            ids = (link.peer_id, HOST_ID)
            proof = Transcript(link.binding(), *ids, nonce, "h" * 22).prove("host", "key", KEY)
            admit = {"t": "admit", "via": "key", "hp": proof, "mk": "m" * 43}
            link.send(change(admit, field, how))
            await asyncio.sleep(30)
            with pytest.raises(JoinFailed):
                await joining
            assert not device.network.mesh.key
            assert not any(peer.admitted for peer in device.peers.values())
            assert not device.tasks.failure.done()
            await network.close()

    run_virtual(main())


@fuzz
@given(CHANGES, st.booleans())
def test_a_mesh_proof_with_a_flaw_opens_no_link(how, says_hello):
    async def scenario(room, host):
        worker = await room.join("worker", secrets=Secrets(key=host.gate.key))
        network, _ = speaker_in(room)
        link = await network.dial(worker.network.peer_id, timeout_s=10)
        ids = (network.peer_id, worker.network.peer_id)
        proof = mesh_proof(host.gate.mesh_key, "dial", link.binding(), *ids)
        if says_hello:
            link.send({"t": "hello", "name": "eve", "v": 4, "auth": 1})
        link.send(change({"t": "mesh", "v": 1, "p": proof}, "p", how))
        await asyncio.sleep(12)
        assert network.peer_id not in worker.peers
        assert not link.is_open
        assert not worker.tasks.failure.done()
        await network.close()

    in_virtual_room(scenario)


@fuzz
@given(st.lists(st.builds(lambda p, none: {"p": p, "none": none}, VALUES, VALUES), max_size=4))
def test_no_stripe_joins_by_what_it_says(messages):
    """Somebody dials a stripe in the name of a device that is in."""

    async def scenario(room, host):
        worker = await room.join("worker", secrets=Secrets(key=host.gate.key))
        await asyncio.sleep(5)
        link = host.network.links[worker.network.peer_id]
        link._owner._stripes[link]._stripes[0].close()  # leaves a place
        before = link.stripes
        caller = room.net.dialer("caller")
        caller.peer_id = worker.network.peer_id
        stripe = await caller.connect(HOST_ID, label=STRIPE_LABEL, timeout_s=10)
        for fields in messages:
            stripe.send({"t": "mesh", "v": 1} | fields)
        await asyncio.sleep(15)
        assert not stripe.is_open
        assert link.stripes in (before, before + 1)  # the device's own came again
        assert not host.tasks.failure.done()

    in_virtual_room(scenario)


MEMBERS = st.dictionaries(st.sampled_from(["id", "name", "meta", "a", "x"]), VALUES, max_size=5)


@fuzz
@given(st.lists(st.one_of(MEMBERS, VALUES), max_size=6), st.sampled_from([{}, {"a": 0}, {"a": 1}]))
def test_no_roster_breaks_a_device_or_admits_a_stranger(members, says):
    async def scenario(room, host):
        worker = await room.join("worker", secrets=Secrets(key=host.gate.key))
        network, _ = speaker_in(room)
        link = await network.dial(worker.network.peer_id, timeout_s=10)
        link.send({"t": "mesh", "v": 1, "none": 1})
        listed = {"id": network.peer_id, "name": "eve", **says}
        to_worker = host.network.links[worker.network.peer_id]
        to_worker.send({"t": "roster", "members": [listed]})
        to_worker.send({"t": "roster", "members": [*members, listed]})
        to_worker.send({"t": "roster", "members": members})
        await asyncio.sleep(12)
        assert network.peer_id not in worker.peers
        assert worker.peers[HOST_ID].admitted
        assert not worker.tasks.failure.done()
        await network.close()

    in_virtual_room(scenario)


MANY = settings(max_examples=5_000, suppress_health_check=list(HealthCheck), deadline=None)


@pytest.mark.long
@MANY
@given(st.sampled_from(["jc", "auth", "kc", "kp", "jn"]), CHANGES)
def test_a_proof_with_a_flaw_lets_nobody_in_for_long(field, how):
    test_a_proof_with_a_flaw_lets_nobody_in.hypothesis.inner_test(field, how)


@pytest.mark.long
@MANY
@given(st.sampled_from(["via", "hp"]), CHANGES)
def test_a_host_whose_proof_has_a_flaw_gets_no_device_for_long(field, how):
    test_a_host_whose_proof_has_a_flaw_gets_no_device.hypothesis.inner_test(field, how)
