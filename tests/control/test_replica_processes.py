"""Replicas as processes that are killed, frozen and restarted."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import signal
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidHandshake

from tests.support.control_process import ControlProcess, control_process
from tests.support.peerjs_socket import peer_socket
from tests.support.redis import RedisServer, redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

pytestmark = [pytest.mark.redis, pytest.mark.timeout(60)]

OPEN = {"type": "OPEN"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as server:
        await server.grow_old()
        yield server


@contextlib.asynccontextmanager
async def replica(server: RedisServer, **environ: str) -> AsyncIterator[ControlProcess]:
    async with control_process(POOLHOUSE_REDIS_URL=server.url, **environ) as control:
        await control.until("store.open")
        yield control


async def answer_to(control: ControlProcess, peer_id: str, token: str) -> str:
    async with peer_socket(control.socket_url, peer_id, token) as peer:
        return (await peer.hear())["type"]


async def test_row_3_kill_9(server: RedisServer) -> None:
    lease = {"POOLHOUSE_REDIS_LEASE_S": "1.5"}
    async with replica(server, **lease) as one, replica(server, **lease) as two:
        async with (
            peer_socket(one.socket_url, "HOST", "own") as host,
            peer_socket(one.socket_url, "GUEST", "own") as guest,
        ):
            assert await host.hear() == await guest.hear() == OPEN
            await one.kill()
        assert await answer_to(two, "HOST", "stranger") == "ID-TAKEN"
        assert await answer_to(two, "GUEST", "own") == "OPEN", "the own token need not wait"
        async with asyncio.timeout(10):
            while await answer_to(two, "HOST", "stranger") != "OPEN":
                await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("lease_s", "frozen_s"),
    [
        (1.0, 2.0),
        pytest.param(15.0, 20.0, marks=[pytest.mark.long, pytest.mark.timeout(90)]),
    ],
)
async def test_row_4_a_replica_that_stood_still_does_not_speak_for_ids_it_lost(
    server: RedisServer, lease_s: float, frozen_s: float
) -> None:
    lease = {"POOLHOUSE_REDIS_LEASE_S": str(lease_s), "POOLHOUSE_PING_INTERVAL_S": "60"}
    async with (
        replica(server, **lease) as one,
        replica(server, **lease) as two,
        peer_socket(one.socket_url, "HOST", "own") as old_host,
        peer_socket(one.socket_url, "GUEST", "own") as guest,
    ):
        assert await old_host.hear() == await guest.hear() == OPEN
        await guest.say({"type": "OFFER", "dst": "HOST", "payload": "before"})
        assert (await old_host.hear())["payload"] == "before"
        one.freeze()
        await guest.say({"type": "OFFER", "dst": "HOST", "payload": "while it stood still"})
        await asyncio.sleep(frozen_s)
        async with peer_socket(two.socket_url, "HOST", "heir") as heir:
            assert await heir.hear() == OPEN
            one.thaw()
            assert (await heir.hear())["payload"] == "while it stood still"
            assert await old_host.close_code() == 4001, "without a word before it"
            await guest.say({"type": "OFFER", "dst": "HOST", "payload": "after"})
            assert (await heir.hear())["payload"] == "after"


async def test_a_second_signal_does_not_wait_for_the_drain(server: RedisServer) -> None:
    async with replica(server, POOLHOUSE_DRAIN_DELAY_S="600") as one:
        one.process.terminate()
        await one.until("drain.began")
        one.process.terminate()
        assert await one.end() == -signal.SIGTERM


async def test_a_drain_without_clients_still_waits_for_balancers(server: RedisServer) -> None:
    async with replica(server, POOLHOUSE_DRAIN_DELAY_S="0.5") as one:
        async with httpx.AsyncClient(trust_env=False) as http:
            one.process.terminate()
            await one.until("drain.began")
            assert (await http.get(one.admin_url + "readyz")).status_code == 503
            assert (await http.get(one.admin_url + "livez")).status_code == 200
        assert await one.end() == 0
        assert [line["event"] for line in one.lines][-2:] == ["drain.ended", "control.stopped"]


# ---- row 13: rolling restarts under load -------------------------------------------------------


@dataclass
class Fleet:
    """The replicas a balancer would send new connections to."""

    urls: list[str] = field(default_factory=list)


@dataclass
class Client:
    """A device that comes back with its own id and token, as the PeerJS client does."""

    peer_id: str
    fleet: Fleet
    heard: list[tuple[str, int]] = field(default_factory=list)
    answers: Counter[str] = field(default_factory=Counter)
    notices: int = 0
    is_up: asyncio.Event = field(default_factory=asyncio.Event)
    _send: asyncio.Queue[str] = field(default_factory=lambda: asyncio.Queue(64))

    async def live(self, ended: asyncio.Event) -> None:
        while not ended.is_set():
            url = random.choice(self.fleet.urls)
            try:
                async with peer_socket(url, self.peer_id, f"token-{self.peer_id}") as peer:
                    await self._be_connected(peer.connection, ended)
            except (InvalidHandshake, OSError):
                await asyncio.sleep(0.05)

    async def _be_connected(self, connection, ended: asyncio.Event) -> None:
        first = json.loads(await connection.recv())["type"]
        self.answers[first] += 1
        if first != "OPEN":
            return
        self.is_up.set()
        sender = asyncio.create_task(self._speak(connection))
        try:
            async for frame in connection:
                message = json.loads(frame)
                if message["type"] == "EXPIRE":
                    self.notices += 1
                else:
                    self.heard.append((message["src"], message["payload"]))
                if ended.is_set():
                    return
        except ConnectionClosed:
            pass
        finally:
            self.is_up.clear()
            sender.cancel()
            await asyncio.wait({sender})

    async def _speak(self, connection) -> None:
        while True:
            frame = await self._send.get()
            try:
                await connection.send(frame)
            except (ConnectionClosed, asyncio.CancelledError):
                # The close had come, and the frame was not sent. A cancel finds it waiting for
                # the end of the connection, before it would say so.
                self._send._queue.appendleft(frame)
                return

    async def say(self, dst: str, number: int) -> None:
        frame = {"type": "OFFER", "dst": dst, "payload": number}
        await self._send.put(json.dumps(frame))


@pytest.mark.parametrize(
    ("pairs", "rate_per_s"),
    [(6, 20), pytest.param(40, 50, marks=[pytest.mark.long, pytest.mark.timeout(180)])],
)
async def test_row_13_two_rolling_restarts_lose_no_message_and_refuse_no_own_token(
    server: RedisServer, pairs: int, rate_per_s: int
) -> None:
    drain = {"POOLHOUSE_DRAIN_DELAY_S": "0.3", "POOLHOUSE_DRAIN_SPREAD_S": "1.0"}
    fleet, ended = Fleet(), asyncio.Event()
    clients = {f"P{n}": Client(f"P{n}", fleet) for n in range(2 * pairs)}
    sent: Counter[tuple[str, str]] = Counter()

    async def chat(src: str, dst: str, quiet: asyncio.Event) -> None:
        while not quiet.is_set():
            await clients[src].say(dst, sent[src, dst])
            sent[src, dst] += 1
            await asyncio.sleep(1 / rate_per_s)

    async with contextlib.AsyncExitStack() as stack, asyncio.TaskGroup() as tasks:
        running = []
        for _ in range(2):
            running.append(await stack.enter_async_context(replica(server, **drain)))
            fleet.urls.append(running[-1].socket_url)
        lives = [tasks.create_task(client.live(ended)) for client in clients.values()]
        for client in clients.values():
            await asyncio.wait_for(client.is_up.wait(), 10)
        quiet = asyncio.Event()
        chats = [
            tasks.create_task(chat(f"P{2 * n + here}", f"P{2 * n + 1 - here}", quiet))
            for n, here in itertools.product(range(pairs), (0, 1))
        ]
        for old in [*running]:
            new = await stack.enter_async_context(replica(server, **drain))
            fleet.urls.append(new.socket_url)
            old.process.terminate()
            fleet.urls.remove(old.socket_url)
            assert await old.end(30) == 0
        quiet.set()
        await asyncio.wait(chats)
        expected = {(dst, src): list(range(count)) for (src, dst), count in sent.items()}
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(15):
                while heard_by(clients) != expected:
                    await asyncio.sleep(0.05)
        heard = heard_by(clients)
        amiss = {
            pair: (
                sorted(set(numbers) - set(heard[pair])),
                len(heard[pair]) - len(set(heard[pair])),
            )
            for pair, numbers in expected.items()
            if heard[pair] != numbers
        }
        assert amiss == {}, "lost, and how many came twice"
        assert not any(client.notices for client in clients.values())
        ended.set()
        for life in lives:
            life.cancel()
        answers = sum((client.answers for client in clients.values()), Counter())
    assert answers.keys() == {"OPEN"}
    assert answers["OPEN"] >= 2 * len(clients), "everybody moved at least once"


def heard_by(clients: dict[str, Client]) -> dict[tuple[str, str], list[int]]:
    """What each client heard from each, sorted: order may break where one of them moved."""
    found: dict[tuple[str, str], list[int]] = {}
    for client in clients.values():
        for src, number in sorted(client.heard):
            found.setdefault((client.peer_id, src), []).append(number)
    return found
