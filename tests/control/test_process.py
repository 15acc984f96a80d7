"""The control plane as a process of its own, and its start and end inside another."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time

import httpx
import pytest

from poolhouse_control.errors import ListenError, PortInUse
from poolhouse_control.listen import bind, url_of
from poolhouse_control.main import Bound, main, serve
from poolhouse_control.settings import Settings
from tests.support.control import running_control
from tests.support.control_process import ENVIRON, control_process
from tests.support.peerjs_socket import peer_socket

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
async def test_a_signal_ends_it_in_seconds_with_sockets_open(number: signal.Signals) -> None:
    """The reference waits until the last client leaves (signaling, 7)."""
    async with control_process() as control, contextlib.AsyncExitStack() as stack:
        peers = [
            await stack.enter_async_context(peer_socket(control.socket_url, f"P{n}"))
            for n in range(5)
        ]
        for peer in peers:
            assert await peer.hear() == {"type": "OPEN"}
        began_at = time.monotonic()
        control.process.send_signal(number)
        assert {await peer.close_code() for peer in peers} == {1012}
        assert await control.end() == 0
        assert time.monotonic() - began_at < 4
        closed = control.events("socket.closed")
        assert [line["reason"] for line in closed] == ["shutdown"] * 5
        assert control.lines[-1]["event"] == "control.stopped"


async def test_a_second_signal_ends_it_at_once() -> None:
    """A client that does not answer the close would hold the first one up to its timeout."""
    async with control_process(POOLHOUSE_SHUTDOWN_TIMEOUT_S="600") as control:
        host, port = control.signal_url.removeprefix("http://").rstrip("/").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        # A request that never ends: its body is announced and not sent.
        writer.write(
            b"POST /api/turn HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n"
            b"Content-Length: 10\r\n\r\n"
        )
        await writer.drain()
        async with httpx.AsyncClient(trust_env=False) as http:
            await http.get(control.signal_url)
        control.process.terminate()
        while True:  # until it has heard the first signal
            try:
                _, probe = await asyncio.open_connection(host, int(port))
                probe.close()
                await asyncio.sleep(0.01)
            except OSError:
                break
        assert control.process.returncode is None
        control.process.terminate()
        assert await asyncio.wait_for(control.process.wait(), 2) == -signal.SIGTERM
        writer.close()
        del reader


def test_uvloop_runs_it_when_present() -> None:
    code = (
        "from poolhouse_control.main import _loop_factory\n"
        "loop = _loop_factory()()\n"
        "print(type(loop).__module__)\n"
        "loop.close()"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRON, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "uvloop"


def test_start_up_imports_nothing_heavy() -> None:
    code = (
        "import sys, poolhouse_control.main\n"
        "heavy = {'torch', 'numpy', 'aiortc', 'aiolibdatachannel', 'redis', 'poolhouse_node'}\n"
        "print(sorted(heavy & {name.partition('.')[0] for name in sys.modules}))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRON, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_settings_are_read_without_a_server() -> None:
    """The command line shows its help from them."""
    code = (
        "import sys, poolhouse_control.settings\n"
        "print(sorted({'litestar', 'uvicorn', 'structlog', 'asyncio'} & set(sys.modules)))"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRON, capture_output=True, text=True, check=True
    )
    assert out.stdout.strip() == "[]"


def test_it_starts_quickly() -> None:
    """Processor time, so that a busy machine does not matter; measured: about 0.5 s."""
    code = "import poolhouse_control.main, time; print(time.process_time())"
    out = subprocess.run(
        [sys.executable, "-c", code], env=ENVIRON, capture_output=True, text=True, check=True
    )
    assert float(out.stdout) < 2.5


def test_a_port_in_use_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with bind("127.0.0.1", 0, setting="") as holder:
        holder.listen()
        port = holder.getsockname()[1]
        assert main(Settings(host="127.0.0.1", port=port, admin_port=0)) == 1
    assert capsys.readouterr().err == (
        f"Port {port} on 127.0.0.1 is in use by another program: stop that program, "
        "or choose another port with --port or POOLHOUSE_PORT.\n"
    )


async def test_an_admin_port_in_use_names_its_own_setting() -> None:
    with bind("127.0.0.1", 0, setting="") as holder:
        holder.listen()
        port = holder.getsockname()[1]
        with pytest.raises(PortInUse, match="--admin-port") as error:
            await serve(Settings(host="127.0.0.1", port=0, admin_port=port))
        assert error.value.port == port


def test_a_bad_setting_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("POOLHOUSE_PORT", "x")
    assert main() == 1
    assert capsys.readouterr().err.startswith("POOLHOUSE_PORT must be a whole number")


@pytest.mark.parametrize(
    ("host", "sentence"),
    [
        ("192.0.2.1", "192.0.2.1 is not an address of this machine."),
        ("no such host", "'no such host' is not an address of this machine."),
    ],
)
def test_an_address_that_is_not_ours(host: str, sentence: str) -> None:
    with pytest.raises(ListenError) as error:
        bind(host, 0, setting="")
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("127.0.0.1", "http://127.0.0.1:80"),
        ("0.0.0.0", "http://127.0.0.1:80"),
        ("::", "http://[::1]:80"),
        ("room.local", "http://room.local:80"),
    ],
)
def test_urls_reach_what_listens(host: str, url: str) -> None:
    assert url_of(host, 80) == url


async def test_embedded_it_leaves_signals_alone() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    async with running_control():
        now = {number: signal.getsignal(number) for number in before}
        assert now == before


async def test_with_signals_it_restores_what_was_there() -> None:
    started: asyncio.Future[Bound] = asyncio.get_running_loop().create_future()
    before = signal.getsignal(signal.SIGTERM)
    settings = Settings(host="127.0.0.1", port=0, admin_port=0, log_level="error")
    task = asyncio.create_task(serve(settings, started=started.set_result, handle_signals=True))
    await started
    signal.raise_signal(signal.SIGTERM)
    await asyncio.wait_for(task, 10)
    assert signal.getsignal(signal.SIGTERM) == before


async def test_cancelling_closes_sockets_and_frees_ports() -> None:
    async with contextlib.AsyncExitStack() as stack:
        async with running_control() as control:
            peer = await stack.enter_async_context(peer_socket(control.socket_url))
            await peer.hear()
            bound = control.bound
        assert await peer.close_code() == 1012
    for port in (bound.port, bound.admin_port):
        with bind("127.0.0.1", port, setting=""):
            pass


async def test_two_run_in_one_process() -> None:
    async with (
        running_control() as one,
        running_control() as two,
        peer_socket(one.socket_url, "A", "one") as first,
        peer_socket(two.socket_url, "A", "two") as second,
    ):
        assert await first.hear() == await second.hear() == {"type": "OPEN"}
