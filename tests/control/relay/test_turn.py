"""``POST /api/turn`` against the vectors (relay credentials, 2)."""

from __future__ import annotations

import hmac
import io
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_control.errors import SettingsError, StoreAway
from poolhouse_control.ops.logs import make_logger
from poolhouse_control.ops.metrics import RelayMetrics, make_registry
from poolhouse_control.relay import credentials, ice
from poolhouse_control.relay.desk import TurnBody, TurnDesk, TurnQuery, read_body
from poolhouse_control.relay.limiter import MemoryLimiter
from poolhouse_control.relay.origins import host_of, is_allowed
from poolhouse_control.relay.providers import Chain, make_providers
from poolhouse_control.settings import Settings
from tests.support.relay_api import CLOUDFLARE_ANSWER, RelayApi, relay_api

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "turn.json").read_text())
NOW_S = 1_700_000_000.0


def case_id(case: Any) -> str:
    return json.dumps(case)[:60]


class NobodyRegistered:
    async def holds(self, peer_id: str, token: str) -> bool:
        return False


class Registered:
    async def holds(self, peer_id: str, token: str) -> bool:
        return (peer_id, token) == ("alice", "hers")


def desk(
    env: dict[str, str],
    registry: Any = None,
    *,
    client: httpx.AsyncClient | None = None,
    registrations: Any = None,
    log: io.StringIO | None = None,
    clock: Clock | None = None,
) -> TurnDesk:
    settings = Settings.load(env)
    metrics = RelayMetrics(registry or make_registry())
    providers = make_providers(settings, client=lambda: client or pytest.fail("no API call"))
    logger = make_logger(stream=log or io.StringIO(), style="json")
    return TurnDesk(
        settings,
        Chain(providers, logger) if providers else None,
        metrics,
        limiter=MemoryLimiter(settings.turn_rate, clock=clock or Clock()),
        registrations=registrations or NobodyRegistered(),
        clock=lambda: NOW_S,
    )


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def post(**said: Any) -> TurnQuery:
    defaults = {"method": "POST", "origin": "https://pooled.run", "host": "pooled.run"}
    return TurnQuery(**(defaults | said))


@pytest.fixture
async def api() -> AsyncIterator[tuple[RelayApi, httpx.AsyncClient]]:
    async with relay_api() as server, httpx.AsyncClient(trust_env=False) as client:
        yield server, client


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


@pytest.mark.parametrize("case", VECTORS["provider"], ids=case_id)
def test_provider(case: dict[str, Any]) -> None:
    providers = make_providers(Settings.load(case["env"]), client=httpx.AsyncClient)
    assert (providers[0].name if providers else None) == case["provider"]


@pytest.mark.parametrize("case", VECTORS["port_53"], ids=lambda case: case["url"])
def test_port_53_is_left_out(case: dict[str, Any]) -> None:
    assert bool(ice.clean({"urls": case["url"]})) is case["kept"]


@pytest.mark.parametrize("case", VECTORS["clean"], ids=case_id)
def test_clean(case: dict[str, Any]) -> None:
    kept = msgspec.to_builtins(ice.clean(case["input"]))
    assert json.loads(json.dumps(kept)) == case["server_keeps"]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["urls", "url", "username", "credential", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(JSON)
def test_whatever_is_sent_only_usable_entries_are_kept(sent: Any) -> None:
    for server in ice.clean(sent):
        assert server.urls
        assert all(ice.usable_url(url) for url in server.urls)
        if ice.has_relay((server,)):
            assert server.username
            assert server.credential
        else:
            assert not server.username + server.credential
        assert "credential" not in repr(server)


@pytest.mark.parametrize(
    ("url", "parts"),
    [
        ("turn:H.example", ("turn", "h.example", 3478, "udp")),
        ("turns:h", ("turns", "h", 5349, "tcp")),
        ("turn:[::1]:99?transport=TCP", ("turn", "::1", 99, "tcp")),
        ("http://h", None),
    ],
)
def test_split(url: str, parts: Any) -> None:
    assert ice.split(url) == parts


@pytest.mark.parametrize("case", VECTORS["coturn_urls"], ids=case_id)
def test_coturn_urls(case: dict[str, Any]) -> None:
    settings = Settings.load(case["env"])
    urls = ice.relay_urls(settings.turn_urls, settings.turn_host)
    assert list(urls) == case["urls"]


@pytest.mark.parametrize("case", VECTORS["url_valid"], ids=lambda case: case["url"])
def test_urls_in_an_answer(case: dict[str, Any]) -> None:
    assert ice.usable_url(case["url"]) is case["server_answer"]


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


API_ANSWERS = {
    "cloudflare": (201, CLOUDFLARE_ANSWER),
    "cloudflare refuses": (403, {"error": "no"}),
    "cloudflare sends no relay": (201, {"iceServers": [{"urls": ["stun:s:3478"]}]}),
}


@pytest.mark.parametrize("case", VECTORS["handler"], ids=lambda case: case["name"])
async def test_handler(case: dict[str, Any], api: tuple[RelayApi, httpx.AsyncClient]) -> None:
    server, client = api
    env = dict(case["env"])
    if case["name"] in API_ANSWERS:
        server.answer(*API_ANSWERS[case["name"]])
        env["POOLHOUSE_TURN_KEY_API_URL"] = server.url
    if "rate" in case:
        env["TURN_RATE"] = str(case["rate"])
    turn = desk(env, client=client)
    clients = case.get("ips", ["203.0.113.1"] * len(case["answers"]))
    for expected, name in zip(case["answers"], clients, strict=True):
        address = {"a": "203.0.113.1", "b": "203.0.113.2"}.get(name, name)
        query = TurnQuery(
            method=case["method"], origin=case["origin"], host="pooled.run", client=address
        )
        answer = await turn.answer(query)
        assert answer.status == expected["status"]
        body = None if answer.body is None else msgspec.to_builtins(answer.body)
        assert json.loads(json.dumps(body)) == expected["body"]
        headers = {name.lower(): value for name, value in answer.headers.items()}
        assert (headers.pop("retry-after", None) is not None) is (answer.status == 429)
        # The type belongs to the body and is set where bytes are made (test_turn_http).
        wanted = {k: v for k, v in expected["headers"].items() if k != "content-type"}
        assert headers == wanted
    if server.requests:
        assert server.requests[0] == {
            "path": "/v1/turn/keys/key123/credentials/generate-ice-servers",
            "authorization": "Bearer tok",
            "body": {"ttl": 21600},
        }


def test_the_rows_of_the_vectors() -> None:
    """All of the service's tables run above; those of a page's device do not belong here."""
    service = {"credentials", "ttl", "provider", "coturn_urls", "url_valid", "port_53", "clean"}
    service |= {"origins", "handler", "limiter"}
    device = {"refresh", "ask_default_relay", "weights", "candidates"}
    assert VECTORS.keys() - {"about"} == service | device
    assert len(VECTORS["handler"]) == 16


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


async def username(turn: TurnDesk, **said: Any) -> str:
    return (await turn.answer(post(**said))).body.ice_servers[0].username


COTURN = {"TURN_SECRET": "north", "TURN_HOST": "h"}


async def test_a_device_gets_a_label_that_hides_its_name() -> None:
    """Decision 17."""
    turn = desk(COTURN)
    assert await username(turn) == "1700021600:pooled"
    names = ("my-laptop", "my-laptop", "phone")
    first, again, other = [await username(turn, body=TurnBody(device=name)) for name in names]
    assert first == again
    assert first != other
    assert "laptop" not in first
    assert first.startswith("1700021600:")
    label = first.partition(":")[2]
    assert label == hmac.digest(b"north", b"label:my-laptop", "sha256").hex()[:16]
    assert label != credentials.device_label("south", "my-laptop"), "keyed"


async def test_with_labels_on_no_two_clients_share_one() -> None:
    turn = desk(COTURN | {"POOLHOUSE_TURN_LABELS": "1"})
    one = await username(turn, client="203.0.113.1")
    assert not one.endswith(":pooled")
    assert one == await username(turn, client="203.0.113.1")
    assert one != await username(turn, client="203.0.113.2")
    assert one != await username(turn, client="203.0.113.1", body=TurnBody(device="phone"))


async def test_answers_are_counted() -> None:
    registry = make_registry()
    turn = desk(COTURN | {"TURN_RATE": "2", "POOLHOUSE_TURN_REQUIRE": "peer"}, registry)
    origins = ("https://pooled.run", "https://pooled.run", "https://pooled.run", "null", None)
    for origin in origins:
        await turn.answer(post(origin=origin))
    await turn.answer(TurnQuery(method="GET", origin=None, host="pooled.run"))
    await turn.answer(TurnQuery(method="OPTIONS", origin=None, host="pooled.run"))

    def count(outcome: str) -> float | None:
        return registry.get_sample_value("poolhouse_relay_credentials_total", {"outcome": outcome})

    assert (count("unproven"), count("rate_limited"), count("origin")) == (2, 1, 2)
    assert (count("issued"), count("not_configured"), count("upstream_error")) == (0, 0, 0)


async def test_after_the_limit_the_time_to_wait_is_told() -> None:
    clock = Clock()
    turn = desk(COTURN | {"TURN_RATE": "1"}, clock=clock)
    assert (await turn.answer(post(client="203.0.113.1"))).status == 200
    clock.now += 17.5
    refused = await turn.answer(post(client="203.0.113.1"))
    assert (refused.status, refused.headers["Retry-After"]) == (429, "43")
    clock.now += 42.5
    assert (await turn.answer(post(client="203.0.113.1"))).status == 200


async def test_the_limit_counts_a_home_of_ipv6_as_one() -> None:
    turn = desk(COTURN | {"TURN_RATE": "1"})
    assert (await turn.answer(post(client="2001:db8:1:2::1"))).status == 200
    assert (await turn.answer(post(client="2001:db8:1:2:ffff::9"))).status == 429
    assert (await turn.answer(post(client="2001:db8:1:3::1"))).status == 200


@pytest.mark.parametrize(
    ("authorization", "status"),
    [("Bearer sesame", 200), ("bearer sesame", 200), ("Bearer other", 403), ("sesame", 403)],
)
async def test_a_program_shows_a_token_in_place_of_an_origin(
    authorization: str, status: int
) -> None:
    """Decision 16."""
    turn = desk(COTURN | {"POOLHOUSE_API_TOKENS": "first, sesame"})
    answer = await turn.answer(post(origin=None, authorization=authorization))
    assert answer.status == status
    assert "Access-Control-Allow-Origin" not in answer.headers


async def test_without_tokens_no_token_is_good() -> None:
    for authorization in ("Bearer ", "Bearer", ""):
        answer = await desk(COTURN).answer(post(origin=None, authorization=authorization))
        assert answer.status == 403


@pytest.mark.parametrize(
    ("require", "said", "status"),
    [
        ("peer", {}, 403),
        ("peer", {"body": TurnBody(peer="alice")}, 403),
        ("peer", {"body": TurnBody(peer="alice", token="his")}, 403),
        ("peer", {"body": TurnBody(peer="alice", token="hers")}, 200),
        ("peer", {"authorization": "Bearer sesame"}, 200),
        ("token", {}, 401),
        ("token", {"body": TurnBody(peer="alice", token="hers")}, 401),
        ("token", {"authorization": "Bearer sesame"}, 200),
        ("none", {}, 200),
    ],
)
async def test_what_a_caller_must_prove(require: str, said: dict[str, Any], status: int) -> None:
    env = COTURN | {"POOLHOUSE_TURN_REQUIRE": require, "POOLHOUSE_API_TOKENS": "sesame"}
    answer = await desk(env, registrations=Registered()).answer(post(**said))
    assert answer.status == status
    if status in (401, 403):
        assert answer.media_type == "application/problem+json"
        assert answer.body.type.startswith("urn:poolhouse:problem:")
        assert answer.headers["Access-Control-Allow-Origin"] == "https://pooled.run"
        assert ("WWW-Authenticate" in answer.headers) is (status == 401)


async def test_who_cannot_be_asked_for_a_proof_is_no_yes() -> None:
    class Away:
        async def holds(self, peer_id: str, token: str) -> bool:
            raise StoreAway("away")

    turn = desk(COTURN | {"POOLHOUSE_TURN_REQUIRE": "peer"}, registrations=Away())
    answer = await turn.answer(post(body=TurnBody(peer="alice", token="hers")))
    assert answer.status == 502


async def test_a_proved_peer_cannot_choose_its_label() -> None:
    turn = desk(COTURN | {"POOLHOUSE_TURN_REQUIRE": "peer"}, registrations=Registered())
    proof = {"peer": "alice", "token": "hers"}
    names = [
        await username(turn, body=TurnBody(device=device, **proof)) for device in ("a", "b", None)
    ]
    assert len(set(names)) == 1


@given(st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()))
def test_any_body_is_read_or_says_nothing(data: bytes) -> None:
    body = read_body(data)
    assert all(isinstance(each, str | None) for each in (body.device, body.peer, body.token))


@given(st.text(max_size=300), st.text(max_size=300), st.text(max_size=300))
async def test_any_text_in_a_body_gets_a_short_label_or_a_refusal(
    device: str, peer: str, token: str
) -> None:
    turn = desk(COTURN, registrations=Registered())
    name = await username(turn, body=TurnBody(device=device, peer=peer, token=token))
    assert len(name) <= len("1700021600:") + 16


async def test_a_failed_provider_gives_way_to_the_next(
    api: tuple[RelayApi, httpx.AsyncClient],
) -> None:
    server, client = api
    server.answer(503, {})
    env = COTURN | {"TURN_KEY_ID": "k", "TURN_KEY_API_TOKEN": "tok-sesame"}
    log = io.StringIO()
    turn = desk(env | {"POOLHOUSE_TURN_KEY_API_URL": server.url}, client=client, log=log)
    for _ in range(2):
        answer = await turn.answer(post())
        assert (answer.status, answer.body.provider) == (200, "coturn")
    assert len(server.requests) == 1, "it is left alone for a while"
    assert log.getvalue().count("503") == 1
    assert "tok-sesame" not in log.getvalue()


@pytest.mark.parametrize(
    "answer",
    [(200, b"\xff"), (200, b"[" * 5000), (200, b"[]"), (200, b" " * 70_000), (302, b"{}")],
    ids=["noise", "deep", "no object", "huge", "redirect"],
)
async def test_an_api_that_talks_nonsense(
    answer: tuple[int, bytes], api: tuple[RelayApi, httpx.AsyncClient]
) -> None:
    server, client = api
    server.answer(*answer)
    env = {"TURN_KEY_ID": "k", "TURN_KEY_API_TOKEN": "t", "POOLHOUSE_TURN_KEY_API_URL": server.url}
    assert (await desk(env, client=client).answer(post())).status == 502


async def test_failures_of_many_requests_are_one_line() -> None:
    log = io.StringIO()
    turn = desk({"TURN_SECRET": "s", "TURN_HOST": "bad host"}, log=log)
    for number in range(20):
        assert (await turn.answer(post(client=f"203.0.113.{number}"))).status == 502
    assert log.getvalue().count("\n") == 1


async def test_an_api_that_is_not_there() -> None:
    env = {
        "TURN_KEY_ID": "k",
        "TURN_KEY_API_TOKEN": "t",
        "POOLHOUSE_TURN_KEY_API_URL": "http://127.0.0.1:1",
    }
    async with httpx.AsyncClient(trust_env=False) as client:
        assert (await desk(env, client=client).answer(post())).status == 502


async def test_a_fixed_list() -> None:
    servers = [
        {"urls": "stun:s.example.org"},
        {"urls": ["turn:h", "bad"], "username": "u", "credential": "c"},
    ]
    answer = await desk({"POOLHOUSE_TURN_ICE_SERVERS": json.dumps(servers)}).answer(post())
    assert answer.status == 200
    assert msgspec.to_builtins(answer.body) == {
        "iceServers": (
            {"urls": ("stun:s.example.org",)},
            {"urls": ("turn:h",), "username": "u", "credential": "c"},
        ),
        "ttl": 21600,
        "provider": "fixed",
        "expiresAt": 1700021600,
    }
    only_stun = {"POOLHOUSE_TURN_ICE_SERVERS": '[{"urls":"stun:s"}]'}
    assert (await desk(only_stun).answer(post())).status == 502


def test_a_fixed_list_that_is_no_json_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match="must be a JSON list"):
        desk({"POOLHOUSE_TURN_ICE_SERVERS": "turn:h"})


def test_credentials_hide_their_password() -> None:
    issued = credentials.issue("north", ttl_s=600, now_s=0)
    assert issued.credential not in repr(issued)
    assert "hers" not in repr(post(body=TurnBody(peer="alice", token="hers")))
