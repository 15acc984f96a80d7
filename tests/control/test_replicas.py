"""Whole control planes over one Redis, in the test's own loop, with real sockets."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import httpx
import pytest
from websockets.exceptions import InvalidStatus

from tests.support.control import RunningControl, running_control
from tests.support.peerjs_socket import PeerSocket, peer_socket, raw_upgrade
from tests.support.redis import RedisServer, redis_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path
    from typing import Any

pytestmark = pytest.mark.redis

OPEN = {"type": "OPEN"}


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[RedisServer]:
    async with redis_server(tmp_path) as server:
        await server.grow_old()
        yield server


@contextlib.asynccontextmanager
async def replica(server: RedisServer, **settings: Any) -> AsyncIterator[RunningControl]:
    chosen = {"redis_url": server.url, "drain_delay_s": 0, "drain_spread_s": 0.2} | settings
    async with running_control(**chosen) as control:
        await until_ready(control)
        yield control


async def until_ready(control: RunningControl) -> None:
    async with httpx.AsyncClient(trust_env=False) as http, asyncio.timeout(10):
        while (await http.get(control.admin_url + "readyz")).status_code != 200:
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def opened(
    control: RunningControl, peer_id: str, token: str = "t"
) -> AsyncIterator[PeerSocket]:
    async with peer_socket(control.socket_url, peer_id, token) as peer:
        assert await peer.hear() == OPEN
        yield peer


async def value_of(control: RunningControl, series: str) -> float:
    async with httpx.AsyncClient(trust_env=False) as http:
        text = (await http.get(control.admin_url + "metrics")).text
    (found,) = [line for line in text.splitlines() if line.startswith(series + " ")]
    return float(found.rsplit(" ", 1)[1])


async def test_a_conversation_over_two_replicas(server: RedisServer) -> None:
    async with (
        replica(server) as one,
        replica(server) as two,
        opened(one, "A") as a,
        opened(two, "B") as b,
    ):
        await a.say('{"type":"OFFER","payload":{"sdp" : 1e400},"dst":"B","src":"liar"}')
        assert await b.text() == '{"type":"OFFER","src":"A","dst":"B","payload":{"sdp" : 1e400}}'
        await b.say({"type": "ANSWER", "payload": "ü", "dst": "A"})
        assert await a.hear() == {"type": "ANSWER", "src": "B", "dst": "A", "payload": "ü"}
        for number in range(200):
            await a.say({"type": "CANDIDATE", "dst": "B", "payload": number})
            await b.say({"type": "CANDIDATE", "dst": "A", "payload": number})
        assert [(await b.hear())["payload"] for _ in range(200)] == list(range(200))
        assert [(await a.hear())["payload"] for _ in range(200)] == list(range(200))
        await a.say({"type": "LEAVE", "dst": "B"})
        assert await b.hear() == {"type": "LEAVE", "src": "A", "dst": "B"}
        series = 'poolhouse_signal_messages_total{route="remote",type="CANDIDATE"}'
        assert await value_of(one, series) == 200
        assert await value_of(one, "poolhouse_store_up") == 1


async def test_ten_rivals_over_two_replicas_have_one_winner(server: RedisServer) -> None:
    async with replica(server) as one, replica(server) as two:
        barrier = asyncio.Barrier(10)

        async def rival(number: int) -> str:
            url = (one, two)[number % 2].socket_url
            async with peer_socket(url, "A", f"t{number}") as peer:
                answer = (await peer.hear())["type"]
                await barrier.wait()
                return answer

        answers = await asyncio.gather(*map(rival, range(10)))
        assert sorted(answers) == ["ID-TAKEN"] * 9 + ["OPEN"]


async def test_takeover_at_another_replica_closes_the_old_socket(server: RedisServer) -> None:
    async with (
        replica(server) as one,
        replica(server) as two,
        opened(one, "A") as old,
        opened(one, "B") as b,
        opened(two, "A") as new,
    ):
        assert await old.close_code() == 4001
        await b.say({"type": "OFFER", "dst": "A", "payload": 1})
        assert (await new.hear())["payload"] == 1


async def test_a_message_waits_for_a_peer_that_comes_to_another_replica(
    server: RedisServer,
) -> None:
    async with replica(server) as one, replica(server) as two, opened(one, "A") as a:
        for number in range(3):
            await a.say({"type": "OFFER", "dst": "Z", "payload": number})
        await a.say({"type": "OFFER", "dst": "A", "payload": "through"})
        assert (await a.hear())["payload"] == "through"
        async with opened(two, "Z") as z:
            assert [(await z.hear())["payload"] for _ in range(3)] == [0, 1, 2]


async def test_expire_for_a_peer_that_never_comes(server: RedisServer) -> None:
    async with (
        replica(server, expire_after_s=0.1, sweep_every_s=0.02) as one,
        opened(one, "A") as a,
    ):
        for _ in range(3):
            await a.say({"type": "OFFER", "dst": "Z", "payload": 1})
        assert await a.text() == '{"type":"EXPIRE","src":"Z","dst":"A"}'
        await a.say({"type": "OFFER", "dst": "A", "payload": "once only"})
        assert (await a.hear())["payload"] == "once only"


async def test_expire_comes_back_over_replicas(server: RedisServer) -> None:
    """The parcel was sent on by the replica its receiver had left: that one tells the sender."""
    timing = {"expire_after_s": 0.1, "sweep_every_s": 0.02}
    async with (
        replica(server, **timing) as one,
        replica(server, **timing) as two,
        opened(one, "A") as a,
    ):
        async with opened(two, "Z") as z:
            await a.say({"type": "OFFER", "dst": "Z", "payload": 1})
            assert (await z.hear())["payload"] == 1
        while '"socket.closed"' not in two.log.getvalue():
            await asyncio.sleep(0.01)
        await a.say({"type": "OFFER", "dst": "Z", "payload": 2})
        assert await a.hear() == {"type": "EXPIRE", "src": "Z", "dst": "A"}
        assert await value_of(two, "poolhouse_signal_rerouted_total") >= 1
        assert await value_of(one, "poolhouse_signal_expired_total") == 1


async def test_row_9_an_id_that_moves_under_load_loses_nothing(server: RedisServer) -> None:
    """Its client leaves one replica and comes to the other, again and again."""
    total = 300
    async with replica(server) as one, replica(server) as two, opened(one, "A") as a:
        heard: list[int] = []

        async def receiver() -> None:
            home = 0
            while len(heard) < total:
                home += 1
                async with opened((one, two)[home % 2], "Z") as z:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(0.05):
                            while len(heard) < total:
                                heard.append((await z.hear())["payload"])
                    await z.connection.send('{"type":"LEAVE"}')  # signs off, reads to the end
                    async for frame in z.connection:
                        heard.append(int(frame.rpartition(":")[2].rstrip("}")))

        receiving = asyncio.create_task(receiver())
        for number in range(total):
            await a.say({"type": "OFFER", "dst": "Z", "payload": number})
            await asyncio.sleep(0.002)
        await asyncio.wait_for(receiving, 15)
        assert sorted(heard) == list(range(total))


async def test_row_11_a_flood_is_answered_at_once(server: RedisServer) -> None:
    async with replica(server) as one, opened(one, "A") as a:
        for number in range(40):
            await a.say({"type": "OFFER", "dst": "Z", "payload": number})
        assert [await a.hear() for _ in range(8)] == [
            {"type": "EXPIRE", "src": "Z", "dst": "A"}
        ] * 8
        async with opened(one, "Z") as z:
            assert [(await z.hear())["payload"] for _ in range(32)] == list(range(32))


async def test_row_12_a_reader_that_stopped_is_cut_by_its_replica(server: RedisServer) -> None:
    async with (
        replica(server) as one,
        replica(server, close_grace_s=0.1) as two,
        opened(one, "A") as a,
    ):
        _, writer = await raw_upgrade(two.signal_url, "Z", receive_buffer_bytes=4096)
        writer.transport.pause_reading()
        for number in range(300):
            await a.say({"type": "OFFER", "dst": "Z", "payload": "x" * 200_000})
            await a.say({"type": "OFFER", "dst": "A", "payload": number})
            while (await a.hear()).get("payload") != number:
                pass  # EXPIRE: the queue for Z is full
            if '"slow_reader"' in two.log.getvalue():
                break
        else:
            pytest.fail("the slow reader was never cut")
        writer.transport.abort()


async def test_row_15_a_storm_is_told_to_come_again(server: RedisServer) -> None:
    async with replica(server, max_connects_per_s=5) as one:
        statuses = []
        async with contextlib.AsyncExitStack() as stack:
            for number in range(20):
                try:
                    peer = peer_socket(one.socket_url, f"P{number}")
                    await (await stack.enter_async_context(peer)).hear()
                except InvalidStatus as refusal:
                    headers = refusal.response.headers
                    statuses.append((refusal.response.status_code, headers["retry-after"]))
        assert {status for status, _ in statuses} == {503}
        assert {wait_s for _, wait_s in statuses} <= set("2345")
        assert 5 <= len(statuses) <= 10
        busy = await value_of(one, 'poolhouse_signal_connects_total{outcome="busy"}')
        assert busy == len(statuses)


async def test_while_redis_is_away_nothing_is_guessed(server: RedisServer) -> None:
    async with (
        replica(server) as one,
        replica(server) as two,
        opened(one, "A") as a,
        opened(one, "B") as b,
        opened(two, "C") as c,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        await a.say({"type": "OFFER", "dst": "C", "payload": 1})
        assert (await c.hear())["payload"] == 1
        server.stop()
        async with asyncio.timeout(10):
            while await value_of(one, "poolhouse_store_up"):
                await asyncio.sleep(0.01)
        with pytest.raises(InvalidStatus) as refusal:
            async with peer_socket(one.socket_url, "NEW"):
                pass
        assert refusal.value.response.status_code == 503
        assert 2 <= int(refusal.value.response.headers["retry-after"]) <= 5
        for path in ("livez", "readyz"):
            assert (await http.get(one.admin_url + path)).status_code == 200
        page = await http.get(one.signal_url, headers={"accept": "text/html"})
        assert "takes no new devices until the store is back" in page.text
        await a.say({"type": "OFFER", "dst": "B", "payload": 2})
        assert (await b.hear())["payload"] == 2, "pairs of one replica go on"
        await a.say({"type": "OFFER", "dst": "C", "payload": 3})
        assert await a.hear() == {"type": "EXPIRE", "src": "C", "dst": "A"}, "at once"
        await server.start()
        async with asyncio.timeout(15):
            while not await value_of(one, "poolhouse_store_up"):
                await asyncio.sleep(0.02)
            while not await value_of(two, "poolhouse_store_up"):
                await asyncio.sleep(0.02)
        await a.say({"type": "OFFER", "dst": "C", "payload": 4})
        assert (await c.hear())["payload"] == 4
        async with peer_socket(two.socket_url, "A", "stranger") as stranger:
            assert (await stranger.hear())["type"] == "ID-TAKEN"


async def test_a_replica_that_never_saw_its_store_is_not_ready(server: RedisServer) -> None:
    server.stop()
    async with (
        running_control(redis_url=server.url) as one,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        assert (await http.get(one.admin_url + "readyz")).status_code == 503
        assert (await http.get(one.admin_url + "livez")).status_code == 200
        await server.start()
        await server.grow_old()
        await until_ready(one)


async def test_drain_sends_clients_away_and_keeps_their_ids_for_them(server: RedisServer) -> None:
    async with replica(server) as two, contextlib.AsyncExitStack() as stack:
        one = await stack.enter_async_context(replica(server))
        peers = [await stack.enter_async_context(opened(one, f"P{n}")) for n in range(10)]
        a = await stack.enter_async_context(opened(two, "A"))
        async with httpx.AsyncClient(trust_env=False) as http:
            url = one.admin_url + "internal/drain"
            assert (await http.post(url, headers={"origin": "http://x"})).status_code == 403
            assert (await http.post(url)).status_code == 202
            first_gone = await asyncio.wait_for(
                asyncio.wait(
                    [asyncio.create_task(peer.close_code()) for peer in peers],
                    return_when=asyncio.FIRST_COMPLETED,
                ),
                5,
            )
            assert (await http.get(one.admin_url + "readyz")).status_code == 503
            with pytest.raises(InvalidStatus) as refusal:
                async with peer_socket(one.socket_url, "NEW"):
                    pass
            assert refusal.value.response.status_code == 503
            codes = [await task for task in (*first_gone[0], *first_gone[1])]
        assert codes == [1012] * 10
        await a.say({"type": "OFFER", "dst": "P3", "payload": "wait for me"})
        async with peer_socket(two.socket_url, "P3", "stranger") as stranger:
            assert (await stranger.hear())["type"] == "ID-TAKEN"
        async with opened(two, "P3") as back:
            assert (await back.hear())["payload"] == "wait for me"


async def test_what_a_dismissed_client_said_last_arrives(server: RedisServer) -> None:
    """It speaks until it has seen the close; the server hears it out."""
    async with (
        replica(server, drain_spread_s=0.0) as one,
        replica(server) as two,
        opened(two, "B") as b,
    ):
        reader, writer = await raw_upgrade(one.signal_url, "A")
        assert b'{"type":"OPEN"}' in await reader.readuntil(b"}")
        async with httpx.AsyncClient(trust_env=False) as http:
            await http.post(one.admin_url + "internal/drain")
        head = await asyncio.wait_for(reader.readexactly(4), 5)
        assert head == b"\x88\x02\x03\xf4", "a close frame with 1012"
        for number in range(3):
            writer.write(masked_text(b'{"type":"OFFER","dst":"B","payload":%d}' % number))
        writer.write(b"\x88\x82\0\0\0\0\x03\xf4")
        assert [(await b.hear())["payload"] for _ in range(3)] == [0, 1, 2]
        assert await asyncio.wait_for(reader.read(), 5) == b"", "then it ends"
        writer.close()


def masked_text(text: bytes) -> bytes:
    assert len(text) < 126
    return bytes([0x81, 0x80 | len(text), 0, 0, 0, 0]) + text


async def test_tokens_and_rooms_stay_out_of_redis_and_logs(server: RedisServer) -> None:
    async with replica(server) as one, opened(one, "pooled-room-7KQ2M", "sesame"):
        for key in await server.keys():
            kind = await server.run("TYPE", key)
            if kind == b"hash":
                assert b"sesame" not in str(await server.run("HGETALL", key)).encode()
        assert "sesame" not in one.log.getvalue()
        assert "7KQ2M" not in one.log.getvalue()
