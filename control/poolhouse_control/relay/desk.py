"""Who gets relay credentials: the checks of the page's table, in its order, without HTTP."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

from poolhouse_control.errors import RelayUnavailable, StoreAway
from poolhouse_control.ops.problems import PROBLEM_TYPE, Problem
from poolhouse_control.relay.clients import NOBODY, subject
from poolhouse_control.relay.origins import host_of, is_allowed
from poolhouse_control.relay.proofs import ApiTokens

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_control.ops.metrics import RelayMetrics
    from poolhouse_control.relay.limiter import Limiter
    from poolhouse_control.relay.proofs import Registrations
    from poolhouse_control.relay.providers import Provider
    from poolhouse_control.settings import Settings

__all__ = ["TurnAnswer", "TurnBody", "TurnDesk", "TurnQuery", "read_body"]

_MAX_TEXT_CHARS: Final = 256

_ALWAYS: Final = {
    "Cache-Control": "no-store",
    "Vary": "Origin",
    "X-Content-Type-Options": "nosniff",
}
_JSON: Final = "application/json"


class TurnBody(msgspec.Struct, frozen=True, kw_only=True):
    """What a request may say in its body; everything is optional."""

    device: str | None = None
    """Any stable name; its keyed hash labels the credentials, the name itself is not kept."""
    peer: str | None = None
    """Id of the caller's live signaling registration."""
    token: str | None = None
    """Token of that registration."""


def read_body(data: bytes) -> TurnBody:
    """Read a body. One that is not ours is no reason to refuse a relay: it says nothing."""
    try:
        return msgspec.json.decode(data, type=TurnBody)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return TurnBody()


class TurnQuery(msgspec.Struct, frozen=True, kw_only=True):
    """One request, as far as it matters."""

    method: str
    origin: str | None
    host: str
    """The ``Host`` header: what the page's own address would be."""
    client: str = NOBODY
    """The client's address."""
    authorization: str | None = None
    body: TurnBody = TurnBody()

    def __repr__(self) -> str:
        """Leave tokens out."""
        return f"TurnQuery(method={self.method!r}, origin={self.origin!r})"


class TurnAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer. ``body`` None means empty."""

    status: int
    headers: Mapping[str, str]
    body: Any = None
    media_type: str = _JSON


class TurnDesk:
    """Decides, in the order of the page's table, who gets relay credentials."""

    def __init__(
        self,
        settings: Settings,
        provider: Provider | None,
        metrics: RelayMetrics,
        *,
        limiter: Limiter,
        registrations: Registrations,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._own_host = host_of(settings.public_url)
        self._listed = settings.turn_allowed_origins
        self._require = settings.turn_require
        self._labels = settings.turn_labels
        self._tokens = ApiTokens(settings.api_tokens)
        self._provider = provider
        self._metrics = metrics
        self._limiter = limiter
        self._registrations = registrations
        self._clock = clock

    async def answer(self, query: TurnQuery) -> TurnAnswer:
        """Answer one request. Never tells a secret."""
        if query.method not in ("POST", "OPTIONS"):
            return _refusal(405, "POST only", {"Allow": "POST, OPTIONS"})
        own_host = self._own_host or query.host
        from_page = is_allowed(query.origin, own_host=own_host, listed=self._listed)
        cors = _cors(query.origin or "") if from_page else {}
        if query.method == "OPTIONS":
            return _empty(cors) if from_page else _refusal(403, "origin not allowed")
        # Programs have no origin of their own: a token stands for one (decision 16).
        has_token = self._tokens.allow(query.authorization)
        if not (from_page or has_token):
            return self._counted("origin", _refusal(403, "origin not allowed"))
        if self._provider is None:
            return self._counted("not_configured", _empty(cors))
        retry_after_s = await self._limiter.admit(subject(query.client))
        if retry_after_s > 0:
            wait = {"Retry-After": str(math.ceil(retry_after_s))}
            return self._counted("rate_limited", _refusal(429, "too many requests", cors | wait))
        # A wrong proof counts against the limit: it could be a guess.
        try:
            if not (has_token or await self._has_proof(query.body)):
                return self._counted("unproven", self._unproven(cors))
            device = self._device(query)
            grant = await self._provider.grant(now_s=self._clock(), device=device)
        except (RelayUnavailable, StoreAway):
            refusal = _refusal(502, "relay credentials unavailable", cors)
            return self._counted("upstream_error", refusal)
        return self._counted("issued", TurnAnswer(status=200, headers=_ALWAYS | cors, body=grant))

    async def _has_proof(self, body: TurnBody) -> bool:
        if self._require == "none":
            return True
        if self._require == "token" or not (body.peer and body.token):
            return False
        return await self._registrations.holds(body.peer, body.token)

    def _unproven(self, cors: dict[str, str]) -> TurnAnswer:
        if self._require == "token":
            return _problem(401, "token-needed", "Show an API token.", cors, _CHALLENGE)
        detail = "Say in the body the id and token of your live signaling registration."
        return _problem(403, "registration-needed", detail, cors)

    def _device(self, query: TurnQuery) -> str | None:
        """Whom the label stands for; None for the label of all (decision 17)."""
        if self._require == "peer" and query.body.peer:
            return "peer:" + query.body.peer[:_MAX_TEXT_CHARS]
        if query.body.device:
            return query.body.device[:_MAX_TEXT_CHARS]
        # With quotas by label, one label for all would be one quota for all.
        return "client:" + subject(query.client) if self._labels else None

    def _counted(self, outcome: str, answer: TurnAnswer) -> TurnAnswer:
        self._metrics.credentials[outcome].inc()
        return answer


_CHALLENGE: Final = {"WWW-Authenticate": "Bearer"}


def _cors(origin: str) -> dict[str, str]:
    return {
        "Access-Control-Allow-Methods": "POST",
        "Access-Control-Allow-Origin": origin,
        "Access-Control-Max-Age": "600",
    }


def _empty(cors: dict[str, str]) -> TurnAnswer:
    return TurnAnswer(status=204, headers=_ALWAYS | cors)


def _refusal(status: int, error: str, headers: dict[str, str] | None = None) -> TurnAnswer:
    return TurnAnswer(status=status, headers=_ALWAYS | (headers or {}), body={"error": error})


def _problem(status: int, kind: str, detail: str, *headers: dict[str, str]) -> TurnAnswer:
    body = Problem(
        type=f"urn:poolhouse:problem:{kind}",
        title="Proof needed",
        status=status,
        detail=detail,
    )
    merged = dict(_ALWAYS)
    for each in headers:
        merged |= each
    return TurnAnswer(status=status, headers=merged, body=body, media_type=PROBLEM_TYPE)
