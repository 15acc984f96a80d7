"""API clients at the gate and afterwards: the switch, those that were sent out, missed pings."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from poolhouse_node.device.events import DeviceLeft
from poolhouse_node.room.gate import REFUSALS, Gate
from poolhouse_node.room.versions import advice_for_them
from poolhouse_node.rtc.network import Network
from tests.support.simulation import HOST_ID, SimRoom
from tests.support.stranger import Stranger
from tests.support.virtual_time import run_virtual

API = {"api": 1, "webgpu": False, "ua": "API", "client": "bridge/1"}
GUEST = {"webgpu": False, "ua": "Device"}


class Client(Stranger):
    """A guest that answers pings, as long as it is told to."""

    answers = True

    def __init__(self, room: SimRoom, peer_id: str | None = None) -> None:
        super().__init__(room)
        self.network = Network(room.net.dialer(peer_id))
        self.network.listen(self)

    async def join(self, **hello: Any) -> None:
        self.link = await self.enter(HOST_ID, **{"meta": API, "join": 1, "name": "bridge"} | hello)
        await asyncio.sleep(1)

    def message(self, link, message: Mapping[str, Any]) -> None:
        super().message(link, message)
        if message["t"] == "ping" and self.answers:
            link.send({"t": "pong", "ts": message["ts"]})

    async def chatter(self, seconds: int) -> None:
        """Say something every second that answers nothing."""
        for _ in range(seconds):
            await asyncio.sleep(1)
            self.link.send({"t": "no-such-thing"})


def in_room(scenario, *, takes_api_clients: bool = True, asks: bool = False):
    async def main():
        async with SimRoom() as room:
            gate = Gate(room.chance.randbytes, asks=asks, takes_api_clients=takes_api_clients)
            return await scenario(room, await room.host(gate=gate))

    return run_virtual(main())


# ---- the gate -----------------------------------------------------------------------------------


def said_to(client: Client) -> list[str]:
    """How the host answered at the gate: ``admit``, ``lobby``, or a reason."""
    kinds = [message for message in client.heard if message["t"] in ("admit", "lobby", "bye")]
    return [message.get("reason", message["t"]) for message in kinds]


@pytest.mark.parametrize("asks", [True, False])
def test_api_clients_are_refused_where_the_host_takes_none(asks):
    async def scenario(room, host):
        client = Client(room)
        await client.join()
        assert said_to(client) == [REFUSALS["no-api"]]
        assert client.closed
        assert host.doorman.waiting() == []
        guest = Client(room)
        await guest.join(meta=GUEST)
        assert said_to(guest) == ["lobby" if asks else "admit"]

    in_room(scenario, takes_api_clients=False, asks=asks)


def test_an_api_client_that_holds_the_key_is_refused_before_it_proves_it():
    async def scenario(room, host):
        client = Client(room)
        await client.join(auth=1, jc="0" * 64, kc=1)
        assert said_to(client) == [REFUSALS["no-api"]]
        assert client.said("auth") == []

    in_room(scenario, takes_api_clients=False)


def test_the_version_is_looked_at_before_the_switch():
    async def scenario(room, host):
        client = Client(room)
        await client.join(v=3)
        assert said_to(client) == [advice_for_them(3)]

    in_room(scenario, takes_api_clients=False)


@pytest.mark.parametrize(("meta", "reason"), [(API, "sent-out"), (GUEST, None)])
def test_an_api_client_that_was_sent_out_does_not_come_back(meta, reason):
    """It would by itself, every 3 s; a guest is brought back by its person."""

    async def scenario(room, host):
        client = Client(room, "bridge-1")
        await client.join(meta=meta)
        assert said_to(client) == ["admit"]
        assert host.kick("bridge")
        await asyncio.sleep(5)
        client.heard.clear()
        await client.join(meta=meta, back=1)
        assert said_to(client) == [REFUSALS[reason] if reason else "admit"]
        other = Client(room, "bridge-2")
        await other.join(meta=meta)
        assert said_to(other) == ["admit"]

    in_room(scenario)


# ---- liveness -----------------------------------------------------------------------------------


def left(room: SimRoom, host) -> list[str]:
    return [event.verb for event in room.of(host).seen(DeviceLeft)]


@pytest.mark.parametrize("after_s", [60.0, 60.9, 62.4, 63.3])
def test_an_api_client_is_dropped_within_17_seconds_of_its_last_answer(after_s):
    async def scenario(room, host):
        client = Client(room)
        await client.join()
        await asyncio.sleep(after_s)
        assert left(room, host) == []
        client.answers = False
        await asyncio.sleep(14.9)
        assert left(room, host) == []
        await asyncio.sleep(2.7)
        assert left(room, host) == ["stopped responding"]

    in_room(scenario)


@pytest.mark.parametrize(("meta", "gone"), [(API, ["stopped responding"]), (GUEST, [])])
def test_an_api_client_owes_answers_a_guest_any_sign_of_life(meta, gone):
    async def scenario(room, host):
        client = Client(room)
        await client.join(meta=meta)
        client.answers = False
        await client.chatter(30)
        assert left(room, host) == gone

    in_room(scenario)


def test_a_host_that_stalls_drops_no_api_client():
    async def scenario(room, host):
        client = Client(room)
        await client.join()
        await asyncio.sleep(10)
        client.answers = False
        await asyncio.sleep(12)  # five pings
        room.of(host).freeze()
        await asyncio.sleep(300)
        client.answers = True
        room.of(host).thaw()
        await asyncio.sleep(60)
        assert left(room, host) == []

    in_room(scenario)
