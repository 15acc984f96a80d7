"""The real server over real WebSockets on loopback."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from tests.support.control import RunningControl, running_control
from tests.support.peerjs_socket import PeerSocket, peer_socket, raw_upgrade

OPEN = {"type": "OPEN"}


async def opened(peer: PeerSocket) -> PeerSocket:
    assert await peer.hear() == OPEN
    return peer


async def test_a_conversation() -> None:
    """Signaling, 8."""
    async with (
        running_control() as control,
        peer_socket(control.socket_url, "A") as a,
        peer_socket(control.socket_url, "B") as b,
    ):
        await opened(a)
        await opened(b)
        await a.say('{"type":"OFFER","payload":{"sdp" : 1e400},"dst":"B","src":"liar","n":1}')
        assert await b.text() == '{"type":"OFFER","src":"A","dst":"B","payload":{"sdp" : 1e400}}'
        await b.say(b'{"type":"ANSWER","payload":"\xc3\xbc","dst":"A"}')
        assert await a.hear() == {"type": "ANSWER", "src": "B", "dst": "A", "payload": "ü"}
        for number in range(20):
            await a.say({"type": "CANDIDATE", "dst": "B", "payload": number})
            await b.say({"type": "CANDIDATE", "dst": "A", "payload": number})
        assert [(await b.hear())["payload"] for _ in range(20)] == list(range(20))
        assert [(await a.hear())["payload"] for _ in range(20)] == list(range(20))


async def test_frames_sent_before_open_are_not_lost() -> None:
    """Signaling, 2: the client speaks as soon as its socket stands."""
    async with running_control() as control, peer_socket(control.socket_url, "B") as b:
        await opened(b)
        async with peer_socket(control.socket_url, "A") as a:
            await a.say({"type": "OFFER", "dst": "B", "payload": 1})
            assert (await b.hear())["payload"] == 1


async def test_a_trailing_slash_and_an_own_path_and_key() -> None:
    async with (
        running_control(path="/deep/er", key="mine") as control,
        peer_socket(control.socket_url + "/", "A", key="mine") as a,
    ):
        assert control.signal_url.endswith("/deep/er/")
        await opened(a)


@pytest.mark.parametrize("path", ["nothing", "peerjs/x", "other/peerjs"])
async def test_other_addresses_refuse_the_upgrade(path: str) -> None:
    async with running_control() as control:
        with pytest.raises(InvalidStatus) as refusal:
            async with connect(control.socket_url.replace("peerjs", path), proxy=None):
                pass
        assert refusal.value.response.status_code in (400, 403, 404)


async def test_a_wrong_key_is_told_then_closed() -> None:
    async with (
        running_control() as control,
        peer_socket(control.socket_url, key="wrong") as a,
    ):
        assert await a.hear() == {"type": "ERROR", "payload": {"msg": "Invalid key provided"}}
        assert await a.close_code() == 1008


async def test_an_unlisted_page_is_told_then_closed() -> None:
    async with (
        running_control(origins="https://room.example") as control,
        peer_socket(control.socket_url, origin="https://evil.example") as evil,
        peer_socket(control.socket_url, origin="https://room.example") as good,
    ):
        assert (await evil.hear())["type"] == "ERROR"
        assert await evil.close_code() == 1008
        await opened(good)


async def test_id_taken_then_free_after_the_owner_left() -> None:
    async with running_control() as control:
        async with peer_socket(control.socket_url, "A", "one") as owner:
            await opened(owner)
            async with peer_socket(control.socket_url, "A", "two") as rival:
                assert (await rival.hear())["type"] == "ID-TAKEN"
                assert await rival.close_code() == 1008
        for _ in range(100):
            async with peer_socket(control.socket_url, "A", "two") as heir:
                if await heir.hear() == OPEN:
                    return
        pytest.fail("the id was never freed")


async def test_ten_rivals_have_one_winner() -> None:
    async with running_control() as control:

        async def rival(number: int) -> str:
            async with peer_socket(control.socket_url, "A", f"t{number}") as peer:
                answer = (await peer.hear())["type"]
                await barrier.wait()
                return answer

        barrier = asyncio.Barrier(10)
        answers = await asyncio.gather(*(rival(number) for number in range(10)))
        assert sorted(answers) == ["ID-TAKEN"] * 9 + ["OPEN"]


async def test_takeover_opens_the_new_socket_and_closes_the_old() -> None:
    async with (
        running_control() as control,
        peer_socket(control.socket_url, "A", "one") as old,
        peer_socket(control.socket_url, "B") as b,
    ):
        await opened(old)
        await opened(b)
        async with peer_socket(control.socket_url, "A", "one") as new:
            await opened(new)
            assert await old.close_code() == 4001
            await b.say({"type": "OFFER", "dst": "A", "payload": 1})
            assert (await new.hear())["payload"] == 1


async def test_expire_for_a_peer_that_never_comes() -> None:
    async with (
        running_control(expire_after_s=0.05, sweep_every_s=0.01) as control,
        peer_socket(control.socket_url, "A") as a,
    ):
        await opened(a)
        await a.say({"type": "OFFER", "dst": "Z", "payload": 1})
        await a.say({"type": "CANDIDATE", "dst": "Z", "payload": 2})
        assert await a.text() == '{"type":"EXPIRE","src":"Z","dst":"A"}'


async def test_messages_wait_for_a_peer_that_comes_late() -> None:
    async with running_control() as control, peer_socket(control.socket_url, "A") as a:
        await opened(a)
        for number in range(3):
            await a.say({"type": "OFFER", "dst": "Z", "payload": number})
        await a.say({"type": "OFFER", "dst": "A", "payload": "through"})
        assert (await a.hear())["payload"] == "through"
        async with peer_socket(control.socket_url, "Z") as z:
            await opened(z)
            assert [(await z.hear())["payload"] for _ in range(3)] == [0, 1, 2]


async def test_a_silent_client_is_cut_and_a_beating_one_is_not() -> None:
    async with (
        running_control(alive_timeout_s=0.4, sweep_every_s=0.02) as control,
        peer_socket(control.socket_url, "A") as silent,
        peer_socket(control.socket_url, "B") as beating,
    ):
        await opened(silent)
        await opened(beating)
        end = asyncio.create_task(silent.close_code())
        while not end.done():
            await beating.say({"type": "HEARTBEAT"})
            await asyncio.wait({end}, timeout=0.02)
        assert end.result() == 1008
        await beating.say({"type": "OFFER", "dst": "B", "payload": "alive"})
        assert (await beating.hear())["payload"] == "alive"


async def test_the_server_pings_and_cuts_who_does_not_answer() -> None:
    """A half-open socket must not hold its id (signaling, 2.3)."""
    async with running_control(ping_interval_s=0.05, ping_timeout_s=0.05) as control:
        reader, writer = await raw_upgrade(control.signal_url, "A")
        assert b'{"type":"OPEN"}' in await reader.readuntil(b"}")
        assert await asyncio.wait_for(reader.read(), 5), "a ping, then the end"
        writer.close()
        async with peer_socket(control.socket_url, "A", "other") as heir:
            await opened(heir)


async def test_leave_without_dst_frees_the_id_and_ends_the_socket() -> None:
    async with (
        running_control() as control,
        peer_socket(control.socket_url, "A", "one") as a,
    ):
        await opened(a)
        await a.say({"type": "LEAVE"})
        assert await a.close_code() == 1000
        async with peer_socket(control.socket_url, "A", "two") as heir:
            await opened(heir)


async def test_malformed_frames_do_not_deafen_a_socket() -> None:
    async with running_control() as control, peer_socket(control.socket_url, "A") as a:
        await opened(a)
        for frame in ("null", "not json", b"\xff\xfe", "{}", '{"type":"OFFER","dst":[]}', "5"):
            await a.say(frame)
        await a.say({"type": "OFFER", "dst": "A", "payload": "hears"})
        assert (await a.hear())["payload"] == "hears"
        await a.say("[")
        assert await a.close_code() == 1008


async def test_a_message_of_the_largest_size_passes_and_a_larger_one_ends_the_socket() -> None:
    async with (
        running_control(max_message_bytes=65_536) as control,
        peer_socket(control.socket_url, "A") as a,
    ):
        await opened(a)
        empty = json.dumps({"type": "OFFER", "dst": "A", "payload": ""})
        filler = "x" * (65_536 - len(empty))
        await a.say({"type": "OFFER", "dst": "A", "payload": filler})
        assert (await a.hear())["payload"] == filler
        await a.say({"type": "OFFER", "dst": "A", "payload": filler + "x"})
        assert await a.close_code() == 1009


async def test_the_default_takes_large_metadata() -> None:
    async with running_control() as control, peer_socket(control.socket_url, "A") as a:
        await opened(a)
        await a.say({"type": "OFFER", "dst": "A", "payload": "x" * 250_000})
        assert len((await a.hear())["payload"]) == 250_000


async def test_a_reader_that_stopped_is_cut_and_its_id_is_free() -> None:
    """A full outbox ends the socket, and the connection goes although nobody reads from it."""
    async with (
        running_control(close_grace_s=0.1) as control,
        peer_socket(control.socket_url, "B") as b,
    ):
        await opened(b)
        _, writer = await raw_upgrade(control.signal_url, "A", receive_buffer_bytes=4096)
        await flood(b, writer, control)
        async with peer_socket(control.socket_url, "A", "other") as heir:
            await opened(heir)
        while '"slow_reader", "event": "socket.closed"' not in control.log.getvalue():
            await asyncio.sleep(0.01)
        writer.transport.abort()


async def test_it_ends_although_a_client_reads_nothing_of_what_waits_for_it() -> None:
    files_before = len(os.listdir("/proc/self/fd"))
    async with contextlib.AsyncExitStack() as stack:
        async with (
            running_control(shutdown_timeout_s=0.1, close_grace_s=60) as control,
            peer_socket(control.socket_url, "B") as b,
        ):
            await opened(b)
            _, writer = await raw_upgrade(control.signal_url, "A", receive_buffer_bytes=4096)
            stack.callback(writer.transport.abort)
            await flood(b, writer, control)
            began_at = time.monotonic()
        assert time.monotonic() - began_at < 4
        await asyncio.sleep(0)
        assert len(os.listdir("/proc/self/fd")) == files_before + 1, "only our own end is left"


async def flood(sender: PeerSocket, writer: asyncio.StreamWriter, control: RunningControl) -> None:
    """Send to ``A``, who stops reading, until the server cuts it."""
    writer.transport.pause_reading()
    for _ in range(200):
        await sender.say({"type": "OFFER", "dst": "A", "payload": "x" * 200_000})
        await sender.say({"type": "OFFER", "dst": "B", "payload": ""})
        await sender.hear()
        if '"slow_reader"' in control.log.getvalue():
            return
    pytest.fail("the slow reader was never cut")


async def test_a_client_that_vanishes_frees_its_id() -> None:
    async with running_control() as control:
        _, writer = await raw_upgrade(control.signal_url, "A")
        writer.transport.abort()
        while '"socket.closed"' not in control.log.getvalue():
            await asyncio.sleep(0.01)
        async with peer_socket(control.socket_url, "A", "other") as heir:
            await opened(heir)


async def test_no_extension_is_agreed() -> None:
    """Signaling, 1: deflate is off; it costs memory for every socket."""
    query = "?key=peerjs&id=A&token=t"
    async with (
        running_control() as control,
        connect(control.socket_url + query, proxy=None) as peer,
    ):
        assert peer.response is not None
        assert "sec-websocket-extensions" not in peer.response.headers
        assert "server" not in peer.response.headers


async def test_no_log_line_holds_a_token_or_a_room(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(0)
    async with running_control() as control:
        for token in ("sesame-one", "sesame-two"):
            async with peer_socket(control.socket_url, "pooled-room-7KQ2M", token) as peer:
                await peer.hear()
        async with peer_socket(control.socket_url, "A", "sesame-three", key="wrong") as peer:
            await peer.close_code() if (await peer.hear())["type"] != "ERROR" else None
    server_lines = [r.getMessage() for r in caplog.records if "client" not in r.name]
    text = control.log.getvalue() + "\n".join(line for line in server_lines if "> GET" not in line)
    assert "socket.opened" in text
    assert "sesame" not in text
    assert "7KQ2M" not in text


@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(seed=st.integers(0, 2**32))
async def test_noise_on_live_sockets(seed: int) -> None:
    """Thousands of random frames: other peers are served, no id sticks, nothing is logged."""
    rng = random.Random(seed)
    async with running_control() as control, peer_socket(control.socket_url, "W") as witness:
        await opened(witness)
        for _ in range(20):
            async with peer_socket(control.socket_url, "A") as noisy:
                await opened(noisy)
                for _ in range(50):
                    try:
                        await noisy.say(random_frame(rng))
                    except Exception:
                        break
        await witness.say({"type": "OFFER", "dst": "W", "payload": "served"})
        while (await witness.hear()).get("payload") != "served":
            pass
    assert "request.failed" not in control.log.getvalue()


def random_frame(rng: random.Random) -> str | bytes:
    shape = rng.randrange(4)
    if shape == 0:
        return rng.randbytes(rng.randrange(60))
    if shape == 1:
        return rng.choice(["null", "{}", "[]", '{"type":"HEARTBEAT"}', '{"type":{}}', ""])
    frame = '{"type":"OFFER","dst":"W","payload":{"x":[1,2,3]}}'
    if shape == 2:
        return frame
    at = rng.randrange(len(frame))
    return frame[:at] + rng.choice('{}[]",:\\0a') + frame[at + 1 :]


async def test_who_comes_in_a_storm_is_told_to_come_again_and_that_is_no_error(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with running_control(max_connects_per_s=1) as control, contextlib.AsyncExitStack() as all:
        for number in range(2):
            await opened(
                await all.enter_async_context(peer_socket(control.socket_url, f"P{number}"))
            )
        with pytest.raises(InvalidStatus) as refusal:
            async with peer_socket(control.socket_url, "late"):
                pass
        assert refusal.value.response.status_code == 503
        assert 2 <= int(refusal.value.response.headers["retry-after"]) <= 5
    assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []
