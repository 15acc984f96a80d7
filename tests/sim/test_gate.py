"""Who gets into a room: real hosts and devices over a simulated network, with and without liars."""

import asyncio

import pytest

from poolhouse_node.device.answers import AskFailed
from poolhouse_node.device.doorman import SeveralWait
from poolhouse_node.device.entrance import SOMEONE_BETWEEN, UNVERIFIED, Secrets
from poolhouse_node.device.events import (
    AnswerStarted,
    DeviceJoined,
    DeviceWaits,
    DeviceWithdrew,
    LobbyEntered,
    Notice,
)
from poolhouse_node.device.joined import JoinFailed
from poolhouse_node.room.gate import REFUSALS, Gate
from poolhouse_node.room.proofs import pass_hash
from poolhouse_node.wire.messages.asking import Ask
from tests.support.simulation import HOST_ID, SimRoom
from tests.support.speaker import speaker_in
from tests.support.virtual_time import run_virtual


def in_room(scenario, *, asks: bool = True, between: bool = False, **host):
    """Run ``scenario(room, host)``; ``between``: someone stands on every link."""

    async def main():
        async with SimRoom() as room:
            room.net.someone_between = between
            gate = Gate(room.chance.randbytes, asks=asks)
            return await scenario(room, await room.host(gate=gate, **host))

    return run_virtual(main())


async def joining(room, name: str, **more) -> tuple:
    device = await room.join(name, wait=False, **more)
    return device, asyncio.ensure_future(device.join())


def test_a_typed_code_waits_until_the_person_allows_it():
    async def scenario(room, host):
        device, join = await joining(room, "otter")
        await asyncio.sleep(60)
        assert not join.done()
        waits = room.of(host).seen(DeviceWaits)[0]
        assert waits.name == "otter"
        assert waits.digits == room.of(device).seen(LobbyEntered)[0].digits
        assert len(waits.digits) == 7
        assert host.doorman.allow("otter")
        await join
        assert room.of(host).seen(DeviceJoined)[0].name == "otter"
        assert [w.name for w in host.doorman.waiting()] == []

    in_room(scenario)


def test_the_person_may_say_the_digits_instead_of_the_name():
    async def scenario(room, host):
        _, join = await joining(room, "otter")
        await asyncio.sleep(5)
        assert host.doorman.allow(host.doorman.waiting()[0].digits.replace(" ", ""))
        await join

    in_room(scenario)


@pytest.mark.parametrize("act", ["allow", "deny"])
def test_a_name_that_two_devices_use_lets_in_neither(act):
    """Names are claims: only the digits say who is meant."""

    async def scenario(room, host):
        _, first = await joining(room, "otter")
        await asyncio.sleep(5)
        _, second = await joining(room, "otter")
        await asyncio.sleep(5)
        digits = [each.digits for each in host.doorman.waiting()]
        with pytest.raises(SeveralWait, match=f"{digits[0]}, {digits[1]}"):
            getattr(host.doorman, act)("otter")
        await asyncio.sleep(5)
        assert not first.done()
        assert not second.done()
        assert host.doorman.allow(digits[1]).digits == digits[1]
        await second
        assert not first.done()
        assert host.doorman.allow("otter").digits == digits[0]
        await first

    in_room(scenario)


def test_nobody_takes_the_digits_of_another_as_a_name():
    async def scenario(room, host):
        _, join = await joining(room, "otter")
        await asyncio.sleep(5)
        digits = host.doorman.waiting()[0].digits
        _, other = await joining(room, digits)
        await asyncio.sleep(5)
        assert host.doorman.allow(digits).name == "otter"
        await join
        assert not other.done()

    in_room(scenario)


def test_nothing_of_the_room_reaches_a_device_that_waits():
    async def scenario(room, host):
        await room.join("inside", secrets=Secrets(key=host.gate.key))
        await host.start()
        device, join = await joining(room, "otter")
        await asyncio.sleep(30)
        assert list(device.known.roster.members) == []
        with pytest.raises(AskFailed):
            await device.ask("let me ask")
        device.send(device.peers[host.network.peer_id], Ask(text="let me ask"))
        await asyncio.sleep(5)
        assert room.of(host).seen(AnswerStarted) == []
        join.cancel()

    in_room(scenario)


def test_a_denied_device_is_told_and_refused_the_next_time():
    async def scenario(room, host):
        _, join = await joining(room, "otter")
        await asyncio.sleep(5)
        assert host.doorman.deny("otter")
        with pytest.raises(JoinFailed, match="did not let this device in"):
            await join
        assert not host.doorman.deny("otter")

    in_room(scenario)


def test_unknown_devices_can_be_denied_without_asking():
    async def scenario(room, host):
        with pytest.raises(JoinFailed, match="did not let this device in"):
            await room.join("otter")
        assert room.of(host).seen(DeviceWaits) == []
        await room.join("friend", secrets=Secrets(key=host.gate.key))

    in_room(scenario, denies_unknown=True)


def test_a_device_that_gives_up_waiting_is_withdrawn():
    async def scenario(room, host):
        device, join = await joining(room, "otter")
        await asyncio.sleep(5)
        join.cancel()
        await device.__aexit__(None, None, None)
        await asyncio.sleep(5)
        assert room.of(host).seen(DeviceWithdrew)
        assert host.doorman.waiting() == []

    in_room(scenario)


def test_the_ninth_in_the_lobby_is_told_that_it_is_full():
    async def scenario(room, host):
        joins = [(await joining(room, f"otter-{number}"))[1] for number in range(8)]
        await asyncio.sleep(10)
        with pytest.raises(JoinFailed) as caught:
            await room.join("late")
        assert str(caught.value) == REFUSALS["full"]
        for join in joins:
            join.cancel()

    in_room(scenario)


def test_the_key_lets_in_and_gives_a_pass_that_brings_back():
    async def scenario(room, host):
        passes = []
        await room.join("otter", secrets=Secrets(key=host.gate.key, changed=passes.append))
        assert pass_hash(passes[0]) in room.saved_gates[-1].passes
        again = await room.join("otter", secrets=Secrets(come_back_pass=passes[0]))
        assert len(passes) == 1
        assert room.of(host).seen(DeviceWaits) == []
        assert again.network.mesh.key == host.gate.mesh_key

    in_room(scenario)


def test_a_wrong_key_waits_like_any_other_and_the_person_is_told():
    async def scenario(room, host):
        _, join = await joining(room, "otter", secrets=Secrets(key="w" * 22))
        await asyncio.sleep(10)
        assert "did not check out" in room.of(host).seen(Notice)[0].text
        assert room.of(host).seen(DeviceWaits)
        host.doorman.allow("otter")
        with pytest.raises(JoinFailed) as caught:
            await join
        assert str(caught.value) == UNVERIFIED

    in_room(scenario)


def test_whoever_trusts_an_unverified_host_goes_in_with_a_warning():
    async def scenario(room, host):
        device = await room.join("otter", secrets=Secrets(key="w" * 22), trust_unverified=True)
        assert "could not be verified" in room.of(device).seen(Notice)[0].text

    in_room(scenario, asks=False)


def test_an_open_room_lets_a_typed_code_in():
    async def scenario(room, host):
        device = await room.join("otter")
        assert room.of(device).seen(LobbyEntered) == []

    in_room(scenario, asks=False)


def test_with_someone_between_a_key_is_worth_nothing_and_the_digits_differ():
    async def scenario(room, host):
        device, join = await joining(room, "otter", secrets=Secrets(key=host.gate.key))
        await asyncio.sleep(10)
        assert not join.done()
        waits = room.of(host).seen(DeviceWaits)[0]
        assert waits.digits != room.of(device).seen(LobbyEntered)[0].digits
        host.doorman.allow("otter")
        with pytest.raises(JoinFailed) as caught:
            await join
        assert str(caught.value) == UNVERIFIED

    in_room(scenario, between=True)


def test_a_host_that_does_not_know_the_key_is_found_out():
    async def scenario(room, host):
        host.gate.key, real = "i" * 22, host.gate.key
        forged = host.gate.on_proof

        def admits_all(hello, proof, transcript):
            decision = forged(hello, proof, transcript)
            return type(decision)("admit", via="key", gives_pass=True, secret="i" * 22)

        host.doorman.gate = _Liar(host.gate, admits_all)
        with pytest.raises(JoinFailed) as caught:
            await room.join("otter", secrets=Secrets(key=real))
        assert str(caught.value) == SOMEONE_BETWEEN

    in_room(scenario)


class _Liar:
    """A gate that lets everyone in and claims that they proved the key."""

    def __init__(self, gate: Gate, on_proof) -> None:
        self._gate, self.on_proof = gate, on_proof

    def __getattr__(self, name: str):
        return getattr(self._gate, name)


def test_a_restarted_host_knows_its_passes():
    async def scenario(room, host):
        passes = []
        await room.join("otter", secrets=Secrets(key=host.gate.key, changed=passes.append))
        state = room.saved_gates[-1]
        saved = {
            "asks": state.asks,
            "key": state.key,
            "mesh_key": state.mesh_key,
            "passes": state.passes,
        }
        return saved, passes[0]

    saved, come_back_pass = in_room(scenario)

    async def main():
        async with SimRoom(seed=7) as room:
            await room.host(gate=Gate.restore(room.chance.randbytes, saved))
            await room.join("otter", secrets=Secrets(come_back_pass=come_back_pass))

    run_virtual(main())


@pytest.mark.parametrize("knows_the_mesh_key", [True, False])
def test_links_between_devices_prove_the_key_of_the_room(knows_the_mesh_key):
    """A stranger who learned a worker's id dials it: the link carries nothing."""

    async def scenario(room, host):
        worker = await room.join("worker", secrets=Secrets(key=host.gate.key))
        stranger = await room.join("stranger", secrets=Secrets(key=host.gate.key))
        if not knows_the_mesh_key:
            stranger.network.mesh.key = "s" * 43
        link = await stranger.network.dial(worker.network.peer_id, timeout_s=10)
        await asyncio.sleep(15)
        admitted = worker.peers.get(stranger.network.peer_id)
        assert (admitted is not None and admitted.admitted) is knows_the_mesh_key
        assert link.is_open is knows_the_mesh_key

    in_room(scenario)


def test_a_whole_room_answers_behind_the_gate():
    async def scenario(room, host):
        for number in (1, 2):
            await room.join(f"worker-{number}", secrets=Secrets(key=host.gate.key))
        await host.until_devices(2)
        await host.start()
        record = await host.ask("why?")
        assert record.failure is None
        stripes = [link.stripes for link in host.network.links.values()]
        assert stripes == [3, 3]

    in_room(scenario)


def test_a_link_that_only_pings_loses_its_place():
    async def scenario(room, host):
        network, _ = speaker_in(room)
        link = await network.dial(HOST_ID, timeout_s=10)
        places = []
        for _ in range(8):
            link.send({"t": "ping", "ts": 1})
            await asyncio.sleep(5)
            places.append(len(host.network.links))
        assert places == [1] * 5 + [0] * 3 or places == [1] * 6 + [0] * 2
        await network.close()

    in_room(scenario)


def test_a_device_is_sent_out_also_when_the_disk_takes_nothing():
    async def scenario(room, host):
        def full_disk():
            raise OSError("No space left on device")

        otter = await room.join("otter", secrets=Secrets(key=host.gate.key))
        host.doorman.save = full_disk
        with pytest.raises(OSError, match="No space left"):
            host.kick("otter")
        await asyncio.sleep(1)
        assert otter.network.peer_id not in host.peers
        assert not host.gate.passes

    in_room(scenario)
