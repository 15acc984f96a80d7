"""The other end of a wire benchmark: a process that sends back what it gets.

Started as ``python -m poolhouse_node.cli.bench.echo_child KIND ...`` by ``bench wire``; the two
talk in JSON lines over stdin and stdout, and the child ends with its stdin.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from poolhouse_node.cli.bench.bare_core import CoreEnd, FrameGatherer
from poolhouse_node.cli.bench.tcp import serve_echo
from poolhouse_node.cli.running import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poolhouse_node.rtc.link import Link
    from poolhouse_node.rtc.peer import Engine
    from poolhouse_node.wire.slices import Frame

__all__ = ["link_host_id"]


def link_host_id(engine: Engine) -> str:
    """Where the echoing device of an engine is registered."""
    return f"echo-{engine}"


def main() -> None:
    """Echo until stdin ends."""
    match sys.argv[1:]:
        case ["core-slices"]:
            run(_echo_slices())
        case ["core-frames"]:
            run(_echo_frames())
        case ["tcp"]:
            run(_echo_tcp())
        case ["link", url, "libdatachannel" | "aiortc" as engine]:
            run(_echo_link(url, engine))
        case _:
            sys.exit(2)


async def _echo_slices() -> None:
    def received(number: int, data: bytes) -> None:
        end.send(number, data)

    end = CoreEnd(received)
    await _answer(end)


async def _echo_frames() -> None:
    gatherer = FrameGatherer()

    def received(_number: int, data: bytes) -> None:
        slices = gatherer.take(data)
        if slices:
            end.send_all(slices)

    end = CoreEnd(received)
    await _answer(end)


async def _answer(end: CoreEnd) -> None:
    reader = await _stdin()
    end.accept(json.loads(await reader.readline()), "offer")
    _say(await end.describe("answer"))
    await reader.read()


async def _echo_tcp() -> None:
    async with serve_echo() as port:
        _say(port)
        await (await _stdin()).read()


class _Echo:
    """A device that only sends frames back."""

    def link_opened(self, link: Link) -> None:
        link.admit()

    def frame(self, link: Link, frame: Frame) -> None:
        link.send_frame(frame)

    def message(self, link: Link, message: Mapping[str, Any]) -> None:
        """Nothing is said here."""

    def link_closed(self, link: Link, reason: str) -> None:
        """The benchmark is over."""

    def signaling_changed(self, *, connected: bool) -> None:
        """It is not needed any more."""


async def _echo_link(url: str, engine: Engine) -> None:
    from poolhouse_node.rtc.open import open_network

    network = await open_network([url], link_host_id(engine), engine=engine)
    network.mesh.key = ""
    network.listen(_Echo())
    _say("ready")
    await (await _stdin()).read()
    await network.close()


def _say(value: Any) -> None:
    print(json.dumps(value), flush=True)


async def _stdin() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=2**20)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    return reader


if __name__ == "__main__":
    main()
