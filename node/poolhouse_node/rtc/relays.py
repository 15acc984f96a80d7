"""Relays that a control plane lends: asked for, reused, kept fresh (relay, section 3)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from poolhouse_node.room.relays import (
    first_retry_after_s,
    is_reusable,
    refresh_after_s,
    retry_after_s,
)
from poolhouse_node.rtc.relay_answer import MAX_ANSWER_BYTES, RelayGrant, read_grant

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from poolhouse_node.wire.servers import SignalServer

__all__ = ["ASK_TIMEOUT_S", "RelayCaller", "Relays", "ask_control_plane", "origin_of"]

ASK_TIMEOUT_S: Final = 2.5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RelayCaller:
    """Who asks, and where."""

    server: SignalServer
    """A control plane: signaling and relay credentials have one address."""
    peer_id: str
    peer_token: str = field(repr=False)
    """Prove a live registration, where the control plane wants that."""
    api_token: str | None = field(default=None, repr=False)


def origin_of(server: SignalServer) -> str:
    """The control plane's own origin, which a program sends as its own (decision 16)."""
    scheme, usual_port = ("https", 443) if server.secure else ("http", 80)
    port = "" if server.port == usual_port else f":{server.port}"
    return f"{scheme}://{server.host}{port}"


async def ask_control_plane(caller: RelayCaller) -> RelayGrant | None:
    """Ask once. None for anything but a 200 with a relay, within :data:`ASK_TIMEOUT_S`."""
    import httpx  # heavy, and not needed on one machine

    try:
        async with asyncio.timeout(ASK_TIMEOUT_S):
            return await _ask(caller)
    except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
        reason = str(error) or type(error).__name__
        _log.info("relay.not_asked: %s: %s", caller.server.label, reason)
        return None


async def _ask(caller: RelayCaller) -> RelayGrant | None:
    import httpx

    origin = origin_of(caller.server)
    headers = {"Origin": origin, "Accept": "application/json"}
    if caller.api_token:
        headers["Authorization"] = f"Bearer {caller.api_token}"
    said = {"device": caller.peer_id, "peer": caller.peer_id, "token": caller.peer_token}
    async with (
        httpx.AsyncClient(timeout=ASK_TIMEOUT_S) as client,
        client.stream("POST", f"{origin}/api/turn", headers=headers, json=said) as answer,
    ):
        if answer.status_code != 200:
            _log.info("relay.none: %s answers %d", caller.server.label, answer.status_code)
            return None
        body = bytearray()
        async for part in answer.aiter_bytes():
            body += part
            if len(body) > MAX_ANSWER_BYTES:
                return None
    return read_grant(bytes(body))


@dataclass(frozen=True, slots=True)
class _Held:
    grant: RelayGrant
    got_at: float


class Relays:
    """What control planes lent to this process, by their origin.

    Later joins use it while less than half its life has passed.
    """

    def __init__(
        self,
        ask: Callable[[RelayCaller], Awaitable[RelayGrant | None]] = ask_control_plane,
    ) -> None:
        self._ask = ask
        self._held: dict[str, _Held] = {}

    async def grant(self, caller: RelayCaller) -> RelayGrant | None:
        """Relays for a join that begins now."""
        held = self._held.get(origin_of(caller.server))
        if held is not None and is_reusable(_now() - held.got_at, held.grant.life_s):
            return held.grant
        return await self._renew(caller)

    async def keep_fresh(
        self, caller: RelayCaller, changed: Callable[[RelayGrant], Awaitable[None]]
    ) -> None:
        """Ask again at three quarters of every life, for ever; tell ``changed`` what came.

        After an answer without a relay it is asked again as if the life were a quarter as long;
        while there never was one, soon and then less and less.
        """
        failures = 1
        delay_s = self._due_in_s(caller)
        while True:
            await asyncio.sleep(delay_s)
            grant = await self._renew(caller)
            if grant is None:
                failures += 1
                delay_s = self._retry_after_s(caller, failures)
            else:
                await changed(grant)
                delay_s = refresh_after_s(grant.life_s)

    async def _renew(self, caller: RelayCaller) -> RelayGrant | None:
        grant = await self._ask(caller)
        if grant is not None:
            self._held[origin_of(caller.server)] = _Held(grant, _now())
        return grant

    def _due_in_s(self, caller: RelayCaller) -> float:
        held = self._held.get(origin_of(caller.server))
        if held is None:
            return first_retry_after_s(1)
        return refresh_after_s(held.grant.life_s, _now() - held.got_at)

    def _retry_after_s(self, caller: RelayCaller, failures: int) -> float:
        held = self._held.get(origin_of(caller.server))
        return first_retry_after_s(failures) if held is None else retry_after_s(held.grant.life_s)


def _now() -> float:
    return asyncio.get_running_loop().time()
