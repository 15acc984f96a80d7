"""Proves that a relay relays, and that it refuses to reach into its own network."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Literal

from poolhouse_node.rtc.peer import RtcError
from poolhouse_node.rtc.turn import Allocation, TurnRefused, allocated, parse_relay_url

if TYPE_CHECKING:
    import ssl
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from poolhouse_node.rtc.turn import RelayUrl

__all__ = ["PRIVATE_PEERS", "RelayFinding", "check_relay", "check_transports"]

PRIVATE_PEERS: Final = ("127.0.0.1", "10.0.0.1", "169.254.169.254", "::1", "::ffff:127.0.0.1")
"""Loopback, a private network, cloud metadata, and loopback in two forms of IPv6."""

_PUBLIC_PEER: Final = "9.9.9.9"
"""Any public address. Nothing is sent there: a permission is a note in the relay."""
_FORBIDDEN, _NO_SUCH_FAMILY = 403, 440
_RELAY_TIMEOUT_S: Final = 5.0
_RESEND_EVERY_S: Final = 0.3
_PROBE_BYTES: Final = 32
_PEER_PORT: Final = 9

type Verdict = Literal["ok", "note", "failed"]


@dataclass(frozen=True, slots=True)
class RelayFinding:
    """One thing looked at."""

    url: str
    what: str
    verdict: Verdict
    words: str


@dataclass(frozen=True, slots=True)
class _Access:
    """How to get an allocation at one address of a relay."""

    text: str
    url: RelayUrl
    username: str
    credential: str
    tls: ssl.SSLContext | None

    def allocated(self, *, ipv6: bool = False) -> AbstractAsyncContextManager[Allocation]:
        return allocated(self.url, self.username, self.credential, ipv6=ipv6, tls=self.tls)

    def finding(self, what: str, verdict: Verdict, words: str) -> RelayFinding:
        return RelayFinding(self.text, what, verdict, words)


def check_transports(urls: Sequence[str]) -> list[RelayFinding]:
    """Note the ways to a relay that are not offered: each opens some networks."""
    there = set()
    for url in urls:
        try:
            there.add(parse_relay_url(url).transport)
        except RtcError:
            continue
    return [
        RelayFinding("", f"over {kind}", "note", "no such address is handed out")
        for kind in ("udp", "tcp", "tls")
        if kind not in there
    ]


async def check_relay(
    url: str, username: str, credential: str, *, tls: ssl.SSLContext | None = None
) -> list[RelayFinding]:
    """Look at one address of a relay with one credential. Never raises for what it finds."""
    try:
        access = _Access(url, parse_relay_url(url), username, credential, tls)
    except RtcError as error:
        return [RelayFinding(url, "address", "failed", str(error))]
    try:
        async with access.allocated() as first:
            host, port = first.relayed
            findings = [access.finding("allocation", "ok", f"relays from {host} port {port}")]
            findings.append(await _through_the_relay(access, first))
            findings.append(await _is_permitted(access, first))
            peers = [peer for peer in PRIVATE_PEERS if ":" not in peer]
            findings += [await _is_refused(access, first, peer) for peer in peers]
    except RtcError as error:
        return [access.finding("allocation", "failed", str(error))]
    return findings + await _ipv6_findings(access)


async def _through_the_relay(access: _Access, first: Allocation) -> RelayFinding:
    """From one allocation to another: both ends of a link may be behind the relay."""
    what = "data through the relay"
    probe = os.urandom(_PROBE_BYTES)
    try:
        async with asyncio.timeout(_RELAY_TIMEOUT_S), access.allocated() as second:
            await first.permit(second.relayed[0])
            await second.permit(first.relayed[0])
            arrived = asyncio.ensure_future(second.receive())
            try:
                while not arrived.done():  # a datagram may get lost
                    await first.send(second.relayed, probe)
                    await asyncio.wait({arrived}, timeout=_RESEND_EVERY_S)
            finally:
                arrived.cancel()
            sender, data = arrived.result()
    except TurnRefused as error:
        return access.finding(what, "failed", f"the relay refuses its own address: {error}")
    except TimeoutError:
        return access.finding(what, "failed", "nothing arrived at the second allocation")
    except RtcError as error:
        return access.finding(what, "failed", str(error))
    if data != probe or sender != first.relayed:
        return access.finding(what, "failed", "something else arrived than was sent")
    return access.finding(what, "ok", "arrived whole at a second allocation")


async def _is_permitted(access: _Access, allocation: Allocation) -> RelayFinding:
    """Deny rules can also cover too much, and then nobody outside is reached."""
    what = "public peers"
    try:
        await allocation.permit(_PUBLIC_PEER)
    except RtcError as error:
        return access.finding(what, "failed", f"refused: {error}")
    return access.finding(what, "ok", "permitted")


async def _ipv6_findings(access: _Access) -> list[RelayFinding]:
    peers = [peer for peer in PRIVATE_PEERS if ":" in peer]
    try:
        async with access.allocated(ipv6=True) as allocation:
            return [await _is_refused(access, allocation, peer) for peer in peers]
    except TurnRefused as error:
        if error.code == _NO_SUCH_FAMILY:
            words = "not reachable: the relay has no IPv6"
            return [access.finding(f"peer {peer}", "ok", words) for peer in peers]
        return [access.finding("IPv6 allocation", "failed", str(error))]
    except RtcError as error:
        return [access.finding("IPv6 allocation", "failed", str(error))]


async def _is_refused(access: _Access, allocation: Allocation, peer: str) -> RelayFinding:
    """A permission and a channel must both be refused, and with the code for forbidden."""
    what = f"peer {peer}"
    channel = partial(allocation.bind, (peer, _PEER_PORT))
    for way, attempt in ("a permission", partial(allocation.permit, peer)), ("a channel", channel):
        try:
            await attempt()
        except TurnRefused as error:
            if error.code != _FORBIDDEN:
                return access.finding(what, "failed", f"{way} fails otherwise: {error}")
        except RtcError as error:
            return access.finding(what, "failed", str(error))
        else:
            return access.finding(what, "failed", f"{way} is given: the relay reaches inside")
    return access.finding(what, "ok", "refused")
