"""The call to Cloudflare's API (relay credentials, 2)."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import msgspec

from poolhouse_control.errors import RelayUnavailable
from poolhouse_control.relay import ice

if TYPE_CHECKING:
    import httpx

    from poolhouse_control.relay.ice import IceServer

__all__ = ["fetch_ice_servers"]

_TIMEOUT_S: Final = 4.0
_MAX_ANSWER_BYTES: Final = 64 * 1024


class _Answer(msgspec.Struct, rename="camel"):
    ice_servers: object = None


async def fetch_ice_servers(
    client: httpx.AsyncClient, url: str, *, token: str, ttl_s: int
) -> tuple[IceServer, ...]:
    """Have credentials made; return what a browser can use of them.

    Raises:
        RelayUnavailable: the API refuses, is slow, or sends no relay. Never tells the token.
    """
    import httpx

    try:
        async with asyncio.timeout(_TIMEOUT_S):
            body = await _post(client, url, token, ttl_s)
    except (httpx.HTTPError, httpx.InvalidURL, TimeoutError) as error:
        raise RelayUnavailable(f"The relay API cannot be asked: {type(error).__name__}.") from None
    servers = _servers_in(body)
    if not ice.has_relay(servers):
        raise RelayUnavailable("The relay API sent no usable relay.")
    return servers


async def _post(client: httpx.AsyncClient, url: str, token: str, ttl_s: int) -> bytes:
    headers = {"Authorization": f"Bearer {token}"}
    async with client.stream("POST", url, headers=headers, json={"ttl": ttl_s}) as answer:
        if not answer.is_success:
            raise RelayUnavailable(f"The relay API answers {answer.status_code}.")
        body = b""
        async for chunk in answer.aiter_bytes():
            body += chunk
            if len(body) > _MAX_ANSWER_BYTES:
                raise RelayUnavailable("The relay API sends too much.")
        return body


def _servers_in(body: bytes) -> tuple[IceServer, ...]:
    try:
        return ice.clean(msgspec.json.decode(body, type=_Answer).ice_servers)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise RelayUnavailable("The relay API sends no JSON object.") from None
