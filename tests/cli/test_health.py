"""`poolhouse health`: what images and units ask whether a process answers."""

import asyncio
import subprocess
import sys

import pytest

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.health import check_health
from tests.support.program import run


async def answering(answer: bytes):
    """A server that says one thing, and what it was asked."""
    asked: list[bytes] = []

    async def serve(reader, writer):
        asked.append(await reader.readline())
        writer.write(answer)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", asked


async def test_it_is_well_when_the_path_that_was_named_says_so():
    server, url, asked = await answering(b"HTTP/1.1 200 OK\r\n\r\nready")
    async with server:
        assert await check_health(f"{url}/readyz") == 0
    assert asked == [b"GET /readyz HTTP/1.1\r\n"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "503 Service Unavailable"),
        (b"HTTP/1.1 301 Moved\r\n\r\n", "301"),
        (b"", "nothing"),
        (b"SSH-2.0\r\n", "SSH-2.0"),
        (b"200\r\n", "200"),
        (b"\xff" * 5000, "does not answer"),
    ],
)
async def test_anything_else_is_not_well(answer, said):
    server, url, _ = await answering(answer)
    async with server:
        with pytest.raises(CommandFailed, match=said):
            await check_health(url)


async def test_a_process_that_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("poolhouse_node.cli.health._DEADLINE_S", 0.05)
    release = asyncio.Event()

    async def silent(reader, writer):
        await release.wait()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        with pytest.raises(CommandFailed, match="did not answer within"):
            await check_health(url)
        release.set()


@pytest.mark.parametrize("url", ["", "localhost:9090", "https://h/", "http://[x", "http://h:99999"])
async def test_a_wrong_address_is_named(url):
    with pytest.raises(CommandFailed, match="no address such as"):
        await check_health(url)


@pytest.mark.slow
def test_the_command_ends_with_1_when_nothing_listens():
    program = run("health", "http://127.0.0.1:1/livez")
    assert program.end() == 1
    assert "does not answer" in program.stderr


def test_it_is_light_enough_to_be_run_every_ten_seconds():
    code = (
        "import sys, poolhouse_node.cli.main, poolhouse_node.cli.health;"
        "print(sorted({'torch', 'numpy', 'httpx', 'litestar'} & set(sys.modules)))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"
