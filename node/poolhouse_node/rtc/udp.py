"""Does UDP get out of this network (relay, section 5)? STUN servers are asked for a sign of life.

A datagram to each, by a socket of our own: an engine would gather candidates to find out the same,
but does not tell servers that are silent from names that nobody knows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from typing import TYPE_CHECKING, Any, Final

from poolhouse_node.rtc import stun
from poolhouse_node.rtc.stun import Message, MessageClass, Method

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from poolhouse_node.rtc.peer import IceSettings
    from poolhouse_node.rtc.tasks import TaskSet

__all__ = ["UdpCheck", "stun_address", "udp_gets_out"]

_LONGEST_S: Final = 4.0
_RESEND_EVERY_S: Final = 0.5
_FRESH_S: Final = 60.0
"""A device may have moved to another network since."""
_MAX_SERVERS: Final = 8
_STUN_PORT: Final = 3478

_log = logging.getLogger(__name__)


def stun_address(url: str) -> tuple[str, int] | None:
    """Host and port of a ``stun:`` URL; None for one over TLS, which says nothing about UDP."""
    scheme, _, rest = url.partition(":")
    if scheme.lower() != "stun":
        return None
    host, colon, port = rest.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = rest, str(_STUN_PORT)
    if not port.isdecimal() or not 0 < int(port) < 65536:
        return None
    return host.strip("[]"), int(port)


async def udp_gets_out(
    stun_urls: Iterable[str], *, bind: str | None = None, timeout_s: float = _LONGEST_S
) -> bool | None:
    """True as soon as one server answers, False when those that could be asked stay silent.

    None when none could be asked: there is none, its name is unknown, or there is no network at
    all. Nothing is known then.
    """
    addresses = [found for url in stun_urls if (found := stun_address(url)) is not None]
    asked = [
        asyncio.ensure_future(_answers(*address, bind, timeout_s))
        for address in addresses[:_MAX_SERVERS]
    ]
    answers: list[bool | None] = []
    try:
        for next_answer in asyncio.as_completed(asked):
            answers.append(await next_answer)
            if answers[-1]:
                return True
    finally:
        for task in asked:
            task.cancel()
        await asyncio.gather(*asked, return_exceptions=True)
    return False if False in answers else None


async def _answers(host: str, port: int, bind: str | None, timeout_s: float) -> bool | None:
    """Does this server answer? None when it cannot be asked."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    try:
        async with asyncio.timeout_at(deadline):
            transport, question = await loop.create_datagram_endpoint(
                _Question,
                remote_addr=await _look_up(host, port),
                local_addr=(bind, 0) if bind is not None else None,
            )
    except (OSError, UnicodeError, TimeoutError):
        return None
    try:
        async with asyncio.timeout_at(deadline):
            await question.ask_until_answered(transport)
    except TimeoutError:
        return False
    finally:
        transport.close()
    return True


class _Question(asyncio.DatagramProtocol):
    """One question to one server. What the network says of it (no route, nobody there) is no
    answer."""

    def __init__(self) -> None:
        self._request = Message(Method.BINDING, MessageClass.REQUEST, os.urandom(12))
        self._answered = asyncio.Event()

    def datagram_received(self, data: bytes, addr: tuple[Any, ...]) -> None:
        """What a server says; also an error means that it heard us."""
        try:
            answer = stun.decode(data)
        except stun.StunError:
            return
        if (
            answer.method == Method.BINDING
            and answer.kind in (MessageClass.SUCCESS, MessageClass.ERROR)
            and answer.transaction == self._request.transaction
        ):
            self._answered.set()

    async def ask_until_answered(self, transport: asyncio.DatagramTransport) -> None:
        """Ask again and again. The caller has the deadline."""
        while not self._answered.is_set():
            transport.sendto(stun.encode(self._request))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_RESEND_EVERY_S):
                    await self._answered.wait()


async def _look_up(host: str, port: int) -> tuple[str, int]:
    """A name's first address. Raises ``OSError`` or ``UnicodeError``.

    By a thread that nobody waits for: a resolver that is silent would hold up the end of the
    process for as long as it pleases.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[tuple[str, int]] = loop.create_future()

    def settle(address: tuple[str, int] | None, error: Exception | None = None) -> None:
        if found.done():
            return
        if address is None:
            found.set_exception(error or OSError("no address"))
        else:
            found.set_result(address)

    def look_up() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            try:
                (*_, first), *_ = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)
            except (OSError, UnicodeError) as error:
                loop.call_soon_threadsafe(settle, None, error)
            else:
                loop.call_soon_threadsafe(settle, (str(first[0]), port))

    threading.Thread(target=look_up, name="stun-lookup", daemon=True).start()
    return await found


class UdpCheck:
    """What is known about UDP on this device's network. Its owner has the tasks."""

    def __init__(
        self,
        tasks: TaskSet,
        ask: Callable[[IceSettings], Awaitable[bool | None]] | None = None,
    ) -> None:
        self.blocked: bool | None = None
        """None while nothing is known."""
        self._tasks = tasks
        self._ask = ask or _ask
        self._asked_at: float | None = None

    def look(self, ice: IceSettings) -> None:
        """Find out beside the caller, unless that was done lately. It takes up to 4 s."""
        now = asyncio.get_running_loop().time()
        lately = self._asked_at is not None and now - self._asked_at < _FRESH_S
        if ice.stun and not lately:
            self._asked_at = now
            self._tasks.spawn(self._find_out(ice), "udp-check")

    async def _find_out(self, ice: IceSettings) -> None:
        gets_out = await self._ask(ice)
        was, self.blocked = self.blocked, None if gets_out is None else not gets_out
        if self.blocked and not was:
            _log.warning("network.udp_blocked: %s", _say_blocked(relay=bool(ice.turn)))


async def _ask(ice: IceSettings) -> bool | None:
    return await udp_gets_out(ice.stun, bind=ice.bind)


def _say_blocked(*, relay: bool) -> str:
    if relay:
        return "UDP does not leave this network: links to other networks go through the relay."
    return "UDP does not leave this network and there is no relay: links stay within it."
