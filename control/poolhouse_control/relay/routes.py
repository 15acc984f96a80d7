"""``POST /api/turn`` over HTTP (relay credentials, 2)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import msgspec
from litestar import Request, Router, post, route
from litestar.datastructures import ResponseHeader
from litestar.enums import HttpMethod
from litestar.exceptions import HTTPException
from litestar.openapi.datastructures import ResponseSpec
from litestar.openapi.spec import (
    OpenAPIMediaType,
    OpenAPIType,
    Operation,
    RequestBody,
    Schema,
)
from litestar.types import ASGIApp, Receive, Scope, Send

from poolhouse_control.ops.problems import Problem
from poolhouse_control.relay.clients import NOBODY
from poolhouse_control.relay.desk import TurnBody, TurnQuery, read_body
from poolhouse_control.relay.providers import RelayGrant

if TYPE_CHECKING:
    from poolhouse_control.relay.clients import ClientAddresses
    from poolhouse_control.relay.desk import TurnAnswer, TurnDesk

__all__ = ["TURN_PATH", "make_router"]

TURN_PATH: Final = "/api/turn"
_MAX_BODY_BYTES: Final = 4096
_NO_BODY: Final = TurnBody()


class Refusal(msgspec.Struct):
    """Why there are no credentials, in the words of the protocol."""

    error: str


class _Reply:
    """Puts an answer on the wire. The framework's own class costs a third of the whole request."""

    def __init__(self, answer: TurnAnswer) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, _receive: Receive, send: Send) -> None:
        """Send head and body, no body where HTTP has none."""
        answer = self._answer
        body = b"" if answer.body is None else msgspec.json.encode(answer.body)
        headers = [(name.lower().encode(), _latin(v)) for name, v in answer.headers.items()]
        if body:
            headers.append((b"content-type", answer.media_type.encode()))
            headers.append((b"content-length", b"%d" % len(body)))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        sent = b"" if scope.get("method") == "HEAD" else body
        await send({"type": "http.response.body", "body": sent, "more_body": False})


def _latin(value: str) -> bytes:
    return value.encode("latin-1", "replace")


@dataclass
class _TurnOperation(Operation):
    """Tells of the body, which is read by hand: a bad one is no reason to refuse a relay."""

    def __post_init__(self) -> None:
        text = Schema(type=OpenAPIType.STRING)
        names = dict.fromkeys(("device", "peer", "token"), text)
        body = Schema(type=OpenAPIType.OBJECT, properties=dict(names))
        media = {"application/json": OpenAPIMediaType(schema=body)}
        self.request_body = RequestBody(content=media, required=False)


_RESPONSES: Final = {
    204: ResponseSpec(None, description="No relay is configured.", generate_examples=False),
    401: ResponseSpec(
        Problem,
        description="An API token is needed.",
        media_type="application/problem+json",
        generate_examples=False,
    ),
    403: ResponseSpec(
        Refusal, description="The origin, or the proof, is not good.", generate_examples=False
    ),
    429: ResponseSpec(Refusal, description="Too many; see Retry-After.", generate_examples=False),
    502: ResponseSpec(
        Refusal, description="No provider has credentials to give.", generate_examples=False
    ),
}


def make_router(desk: TurnDesk, addresses: ClientAddresses) -> Router:
    """Build the route. It takes every method itself: a 405 must carry our headers."""

    async def answer(request: Request[Any, Any, Any]) -> ASGIApp:
        headers = request.headers
        query = TurnQuery(
            method=request.method,
            origin=headers.get("origin"),
            host=headers.get("host", ""),
            client=_client(request, addresses),
            authorization=headers.get("authorization"),
            body=await _body(request),
        )
        return _Reply(await desk.answer(query))

    @post(
        TURN_PATH,
        status_code=200,
        include_in_schema=True,
        operation_id="createRelayCredentials",
        operation_class=_TurnOperation,
        summary="Make relay credentials",
        description="Short-lived credentials for a TURN relay, for one device.",
        tags=["relay"],
        response_headers=[
            ResponseHeader(name="Cache-Control", description="no-store", documentation_only=True)
        ],
        responses={200: ResponseSpec(RelayGrant, description="Use these.", generate_examples=False)}
        | _RESPONSES,
        raises=[],
    )
    async def turn(request: Request[Any, Any, Any]) -> ASGIApp:
        return await answer(request)

    @route(
        TURN_PATH,
        http_method=[method for method in HttpMethod if method is not HttpMethod.POST],
        status_code=200,
    )
    async def other_methods(request: Request[Any, Any, Any]) -> ASGIApp:
        return await answer(request)

    # OPTIONS first: else the framework adds its own, and ours would be one too many.
    return Router(path="/", route_handlers=[other_methods, turn])


def _client(request: Request[Any, Any, Any], addresses: ClientAddresses) -> str:
    peer = request.client.host if request.client is not None else None
    headers = request.headers
    found = addresses.of(peer, headers.get("x-real-ip"), headers.get("x-forwarded-for"))
    return found or NOBODY


async def _body(request: Request[Any, Any, Any]) -> TurnBody:
    if request.method != "POST" or not _has_small_body(request):
        return _NO_BODY
    try:
        return read_body(await request.body())
    except HTTPException:  # longer than it said
        return _NO_BODY


def _has_small_body(request: Request[Any, Any, Any]) -> bool:
    length = request.headers.get("content-length", "")
    return length.isdecimal() and len(length) <= 4 and 0 < int(length) <= _MAX_BODY_BYTES
