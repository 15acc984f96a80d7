"""``POST /api/turn`` against the vectors (relay credentials, 2)."""

from __future__ import annotations

import hmac
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_control.ops.metrics import RelayMetrics, make_registry
from poolhouse_control.relay import credentials
from poolhouse_control.relay.origins import host_of, is_allowed
from poolhouse_control.relay.providers import make_provider
from poolhouse_control.relay.routes import TurnDesk, TurnQuery
from poolhouse_control.settings import Settings

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "turn.json").read_text())
NOW_S = 1_700_000_000.0

NOT_BUILT_YET = {
    "cloudflare",
    "cloudflare refuses",
    "cloudflare sends no relay",
    "rate limit",
}
"""Handler cases of the hosted provider and of the limit per address."""


def case_id(case: Any) -> str:
    return json.dumps(case)[:60]


def desk(env: dict[str, str], registry: Any = None) -> TurnDesk:
    settings = Settings.load(env).turn
    metrics = RelayMetrics(registry or make_registry())
    return TurnDesk(settings, make_provider(settings), metrics, clock=lambda: NOW_S)


@pytest.mark.parametrize("case", VECTORS["credentials"], ids=lambda case: case["username"])
def test_credentials(case: dict[str, Any]) -> None:
    issued = credentials.issue(
        case["secret"], ttl_s=case["ttl_s"], now_s=case["now_ms"] / 1000, label=case["tag"]
    )
    assert issued.username == case["username"]
    assert issued.credential == case["credential"]
    assert issued.expires_at_s == int(case["username"].partition(":")[0])


@pytest.mark.parametrize("case", VECTORS["ttl"], ids=case_id)
def test_ttl(case: dict[str, Any]) -> None:
    env = {} if case["TURN_TTL"] is None else {"TURN_TTL": case["TURN_TTL"]}
    assert Settings.load(env).turn_ttl_s == case["ttl_s"]


@pytest.mark.parametrize("text", ["soon", "s3600", ".5", "-"])
def test_a_ttl_that_is_no_number_is_the_default(text: str) -> None:
    assert Settings.load({"TURN_TTL": text}).turn_ttl_s == 21_600


@pytest.mark.parametrize(
    "case",
    [case for case in VECTORS["provider"] if case["provider"] != "cloudflare"],
    ids=case_id,
)
def test_provider(case: dict[str, Any]) -> None:
    provider = make_provider(Settings.load(case["env"]).turn)
    assert (provider.name if provider else None) == case["provider"]


def test_the_provider_cases_that_are_not_built_yet_are_those_of_cloudflare() -> None:
    skipped = [case for case in VECTORS["provider"] if case["provider"] == "cloudflare"]
    assert len(skipped) == 2
    assert all("TURN_KEY_API_TOKEN" in case["env"] for case in skipped)


@pytest.mark.parametrize("case", VECTORS["coturn_urls"], ids=case_id)
def test_coturn_urls(case: dict[str, Any]) -> None:
    settings = Settings.load(case["env"])
    urls = credentials.relay_urls(settings.turn_urls, settings.turn_host)
    assert list(urls) == case["urls"]


@pytest.mark.parametrize("case", VECTORS["url_valid"], ids=lambda case: case["url"])
def test_urls_in_an_answer(case: dict[str, Any]) -> None:
    assert credentials.usable_url(case["url"]) is case["server_answer"]


@pytest.mark.parametrize("case", VECTORS["origins"], ids=case_id)
def test_origins(case: dict[str, Any]) -> None:
    listed = Settings.load(case["env"]).turn_allowed_origins
    allowed = is_allowed(case["origin"], own_host=case["self_host"], listed=listed)
    assert allowed is case["allowed"]


@pytest.mark.parametrize(
    ("origin", "own_host", "allowed"),
    [
        ("null", "pooled.run", False),
        ("https://user@pooled.run", "pooled.run", False),
        ("https://pooled.run:443", "pooled.run", True),
        ("https://pooled.run", "POOLED.run:443", True),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", True),
        ("http://127.0.0.1:8080", "127.0.0.1:8081", False),
        ("https://[2001:db8::1]", "[2001:db8::1]", True),
        ("https://pooled.run", "", False),
        ("https://", "", False),
        ("https://pooled.run:99999", "pooled.run:99999", False),
        ("ftp://pooled.run", "pooled.run", False),
        ("https://a", "a/../b", True),
        ("https://poo\nled.run", "pooled.run", False),
        (" https://pooled.run", "pooled.run", False),
    ],
)
def test_more_origins(origin: str, own_host: str, allowed: bool) -> None:
    assert is_allowed(origin, own_host=own_host) is allowed


@given(origin=st.text(max_size=60), host=st.text(max_size=60), entry=st.text(max_size=30))
def test_any_text_is_only_allowed_or_not(origin: str, host: str, entry: str) -> None:
    assert is_allowed(origin, own_host=host, listed=(entry,)) in (True, False)


@given(label=st.from_regex(r"[a-z0-9-]{0,20}", fullmatch=True), rest=st.text(max_size=20))
def test_a_star_stays_inside_one_label(label: str, rest: str) -> None:
    listed = ("https://*.example.org",)
    origin = f"https://{label}{rest}.example.org"
    if is_allowed(origin, own_host="other", listed=listed):
        inner = origin.lower().removeprefix("https://").removesuffix(".example.org")
        assert all(char in "abcdefghijklmnopqrstuvwxyz0123456789-" for char in inner)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Room.example/", "room.example"),
        ("https://room.example:8443/x", "room.example:8443"),
        ("http://[::1]:80", "[::1]"),
        ("", ""),
        ("room.example", ""),
    ],
)
def test_host_of_a_url(url: str, host: str) -> None:
    assert host_of(url) == host


@pytest.mark.parametrize(
    "case",
    [case for case in VECTORS["handler"] if case["name"] not in NOT_BUILT_YET],
    ids=lambda case: case["name"],
)
async def test_handler(case: dict[str, Any]) -> None:
    turn = desk(case["env"])
    query = TurnQuery(method=case["method"], origin=case["origin"], host="pooled.run")
    for expected in case["answers"]:
        answer = await turn.answer(query)
        assert answer.status == expected["status"]
        body = None if answer.body is None else msgspec.to_builtins(answer.body)
        assert json.loads(json.dumps(body)) == expected["body"]
        headers = {name.lower(): value for name, value in answer.headers.items()}
        # The type belongs to the body and is set where bytes are made (test_turn_http).
        wanted = {k: v for k, v in expected["headers"].items() if k != "content-type"}
        assert headers == wanted


def test_only_what_is_not_built_yet_is_left_out() -> None:
    assert {case["name"] for case in VECTORS["handler"]} >= NOT_BUILT_YET
    assert len(VECTORS["handler"]) - len(NOT_BUILT_YET) == 12


@pytest.mark.parametrize("method", ["HEAD", "DELETE", "PATCH", "TRACE", "BREW"])
async def test_other_methods(method: str) -> None:
    answer = await desk({}).answer(TurnQuery(method=method, origin=None, host="pooled.run"))
    assert answer.status == 405
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_behind_a_proxy_the_public_host_counts() -> None:
    turn = desk({"POOLHOUSE_PUBLIC_URL": "https://room.example/"})
    for origin, status in (("https://room.example", 204), ("https://10.0.0.5:8080", 403)):
        query = TurnQuery(method="POST", origin=origin, host="10.0.0.5:8080")
        assert (await turn.answer(query)).status == status


async def test_a_device_gets_a_label_that_hides_its_name() -> None:
    """Decision 17."""
    turn = desk({"TURN_SECRET": "north", "TURN_HOST": "h"})

    async def username(device: str | None) -> str:
        query = TurnQuery(
            method="POST", origin="https://pooled.run", host="pooled.run", device=device
        )
        return (await turn.answer(query)).body.ice_servers[0].username

    assert await username(None) == "1700021600:pooled"
    first, again, other = [await username(name) for name in ("my-laptop", "my-laptop", "phone")]
    assert first == again
    assert first != other
    assert "laptop" not in first
    assert first.startswith("1700021600:")
    label = first.partition(":")[2]
    assert label == hmac.digest(b"north", b"label:my-laptop", "sha256").hex()[:16]
    assert label != credentials.device_label("south", "my-laptop"), "keyed"


async def test_answers_are_counted() -> None:
    registry = make_registry()
    turn = desk({"TURN_SECRET": "north", "TURN_HOST": "h"}, registry)
    for origin in ("https://pooled.run", "https://pooled.run", "https://evil.example", None):
        await turn.answer(TurnQuery(method="POST", origin=origin, host="pooled.run"))
    await turn.answer(TurnQuery(method="GET", origin=None, host="pooled.run"))
    await turn.answer(TurnQuery(method="OPTIONS", origin=None, host="pooled.run"))

    def count(outcome: str) -> float | None:
        return registry.get_sample_value("poolhouse_relay_credentials_total", {"outcome": outcome})

    assert (count("issued"), count("origin"), count("not_configured")) == (2, 2, 0)


def test_credentials_hide_their_password() -> None:
    issued = credentials.issue("north", ttl_s=600, now_s=0)
    assert issued.credential not in repr(issued)
