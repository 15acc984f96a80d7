"""Devices and hosts from before the proofs, and what our own never do for them."""

import asyncio

import pytest

from poolhouse_node.device.entrance import UNVERIFIED, Secrets
from poolhouse_node.device.events import DeviceJoined, DeviceWaits, Notice
from poolhouse_node.device.joined import JoinFailed
from poolhouse_node.room.gate import REFUSALS
from poolhouse_node.rtc.connection import STRIPE_LABEL
from tests.sim.test_gate import in_room
from tests.support.simulation import HOST_ID
from tests.support.speaker import speaker_in

OLD_HELLO = {"t": "hello", "name": "attic", "v": 4, "meta": {"ua": "Mac", "webgpu": True}}

NOT_SECRETS = ["w" * 22, "é" * 22, "", 5, None, ["x"]]


async def old_device(room, **fields):
    """A device of before the proofs that has said hello, and what it heard so far."""
    network, speaker = speaker_in(room)
    link = await network.dial(HOST_ID, timeout_s=10)
    link.send(OLD_HELLO | fields)
    await asyncio.sleep(5)
    return network, link, speaker


def names(speaker) -> set[str]:
    return {message["t"] for message in speaker.heard}


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize("shows", ["key", "pass"])
def test_a_raw_secret_counts_only_where_the_person_said_so(takes, shows):
    async def scenario(room, host):
        passes = []
        await room.join("otter", secrets=Secrets(key=host.gate.key, changed=passes.append))
        host.gate.takes_raw_secrets = takes
        secret = {"key": host.gate.key, "pass": passes[0]}[shows]
        network, _, speaker = await old_device(room, join=1, **{shows: secret})
        joined = [event.name for event in room.of(host).seen(DeviceJoined)]
        assert ("attic" in joined) is takes
        assert bool(room.of(host).seen(DeviceWaits)) is not takes
        assert "older device" in room.of(host).seen(Notice)[-1].text
        admits = [message for message in speaker.heard if message["t"] == "admit"]
        assert [("via" in admit, "hp" in admit) for admit in admits] == [(False, False)] * takes
        assert [("pass" in admit) for admit in admits] == [shows == "key"] * takes
        await network.close()

    in_room(scenario)


@pytest.mark.parametrize("takes", [True, False])
@pytest.mark.parametrize(
    "shows", [{}, *({name: secret} for name in ("key", "pass") for secret in NOT_SECRETS)]
)
def test_other_old_devices_wait_or_are_too_old_to(takes, shows):
    async def scenario(room, host):
        host.gate.takes_raw_secrets = takes
        one, _, speaker = await old_device(room, join=1, **shows)
        assert "lobby" in names(speaker)
        two, _, older = await old_device(room, **shows)
        refused = [message["reason"] for message in older.heard if message["t"] == "bye"]
        assert refused == [REFUSALS["too-old"]]
        assert room.of(host).seen(DeviceJoined) == []
        await one.close()
        await two.close()

    in_room(scenario)


@pytest.mark.parametrize("takes", [True, False])
def test_stripes_of_an_old_device_join_only_where_the_person_said_so(takes):
    async def scenario(room, host):
        host.gate.takes_raw_secrets = True
        host.network.mesh.takes_older_devices = takes
        network, link, _ = await old_device(room, join=1, key=host.gate.key)
        stripe = await network._dialer.connect(HOST_ID, label=STRIPE_LABEL, timeout_s=10)
        await asyncio.sleep(1)
        at_host = host.network.links[network.peer_id]
        assert at_host.stripes == takes
        for _ in range(6):
            link.send({"t": "ping", "ts": 1})
            await asyncio.sleep(2)
        assert stripe.is_open is takes
        assert link.is_open
        await network.close()

    in_room(scenario)


HOSTS = {
    "from before the gate": {},
    "from before the proofs": {"gate": 1, "ask": 1},
    "says auth 0": {"gate": 1, "auth": 0},
}


@pytest.mark.parametrize("host_says", HOSTS.values(), ids=HOSTS)
@pytest.mark.parametrize("trusts", [True, False])
@pytest.mark.parametrize("holds", ["key", "come_back_pass", "nothing"])
def test_our_devices_show_no_host_their_secrets(host_says, trusts, holds):
    async def scenario(room, host):
        await host.network.close()
        network, speaker = speaker_in(room, HOST_ID)
        secret = "s" * 22
        secrets = Secrets(**{holds: secret}) if holds != "nothing" else Secrets()
        device = await room.join("otter", secrets=secrets, trust_unverified=trusts, wait=False)
        join = asyncio.ensure_future(device.join())
        await asyncio.sleep(1)
        (link,) = network.links.values()
        link.send({"t": "hello", "name": "host", "v": 4, **host_says})
        await asyncio.sleep(2)
        link.send({"t": "admit"})
        if holds == "nothing" or trusts:
            await join
        else:
            with pytest.raises(JoinFailed) as caught:
                await join
            assert str(caught.value) == UNVERIFIED
        assert secret not in str(speaker.heard)
        for message in speaker.heard:
            assert not {"key", "pass"} & message.keys()
            assert message["t"] != "hello" or not {"kc", "pid"} & message.keys()
        await network.close()

    in_room(scenario)
