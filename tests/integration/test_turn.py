"""A real coturn, a real control plane, and ``poolhouse turn`` as a person starts it."""

import asyncio
import base64
import hmac
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from redis import Redis

from poolhouse_control.relay.coturn_settings import CoturnSettings
from poolhouse_control.relay.credentials import issue
from poolhouse_control.relay.probe import probe
from poolhouse_control.relay.rotation import SqliteStore
from poolhouse_node.rtc.turn import TurnRefused, allocated, parse_relay_url
from poolhouse_node.rtc.turn_check import PRIVATE_PEERS, check_relay
from tests.support.control import RunningControl, running_control
from tests.support.coturn import NEW_SECRET, OLD_SECRET, REALM, Coturn, coturn
from tests.support.program import Program
from tests.support.redis import redis_server

pytestmark = pytest.mark.coturn

MAPPED = "denied-peer-ip=::ffff:0.0.0.0-::ffff:255.255.255.255"


def credential(secret: str = OLD_SECRET, label: str = "pooled", ttl_s: int = 600) -> Any:
    return issue(secret, ttl_s=ttl_s, now_s=time.time(), label=label)


async def findings_of(relay: Coturn, url: str, secret: str = OLD_SECRET) -> dict[str, str]:
    made = credential(secret)
    found = await check_relay(url, made.username, made.credential, tls=relay.certificate.trusted())
    return {finding.what: finding.verdict for finding in found}


async def can_allocate(relay: Coturn, secret: str, **said: Any) -> bool:
    made = credential(secret, **said)
    return await takes(relay, (made.username, made.credential))


async def takes(relay: Coturn, made: tuple[str, str]) -> bool:
    """Does the relay give an allocation for this user name and password?"""
    try:
        async with allocated(parse_relay_url(relay.urls[0]), *made):
            return True
    except TurnRefused as error:
        if error.code != 401:
            raise
        return False


async def poolhouse(*arguments: str, **env: str) -> Program:
    program = Program.start(*arguments, env=env)
    await asyncio.to_thread(program.process.wait, 15)
    await asyncio.to_thread(program.end)
    return program


@asynccontextmanager
async def both(folder: Path, env: dict[str, str] | None = None, **said: Any):
    """A relay, and a control plane that hands it out."""
    async with coturn(folder, **said) as relay:
        environ = {"TURN_SECRET": OLD_SECRET, "TURN_URLS": ",".join(relay.urls)} | (env or {})
        if "POOLHOUSE_TURN_SECRET_FILE" in environ:
            del environ["TURN_SECRET"]
        async with running_control(environ) as control:
            yield relay, control


# ---- turn check ---------------------------------------------------------------------------------


async def test_the_check_is_green_over_udp_tcp_and_tls(tmp_path):
    async with both(tmp_path) as (relay, control):
        program = await poolhouse(
            *("turn", "check", "--control", control.signal_url, "--json"),
            *("--ca", str(relay.certificate.cert)),
        )
        shown = await poolhouse(
            *("turn", "check", "--control", control.signal_url),
            *("--ca", str(relay.certificate.cert)),
        )
    findings = json.loads(program.stdout)
    assert program.process.returncode == 0, program.stderr
    assert {finding["url"] for finding in findings} == set(relay.urls)
    assert {finding["verdict"] for finding in findings} == {"ok"}
    for url in relay.urls:
        looked_at = [finding["what"] for finding in findings if finding["url"] == url]
        assert looked_at == [
            "allocation",
            "data through the relay",
            "public peers",
            *(f"peer {peer}" for peer in PRIVATE_PEERS),
        ]
    refused = [finding["words"] for finding in findings if finding["what"].startswith("peer")]
    assert refused == ["refused"] * 15, "by a rule, not because the relay has no IPv6"
    assert shown.process.returncode == 0
    assert "failed" not in shown.stdout
    assert shown.stdout.count("refused") == 15
    assert "Forbidden IP" in relay.log.decode()
    assert OLD_SECRET not in shown.stdout + shown.stderr + control.log.getvalue()


@pytest.mark.parametrize(
    ("line", "peers"),
    [
        (MAPPED, {"peer ::ffff:127.0.0.1"}),
        ("denied-peer-ip=127.0.0.0-127.255.255.255", {"peer 127.0.0.1"}),
        ("denied-peer-ip=10.0.0.0-10.255.255.255", {"peer 10.0.0.1"}),
        ("denied-peer-ip=169.254.0.0-169.254.255.255", {"peer 169.254.169.254"}),
        ("denied-peer-ip=::1-::ffff:ffff", {"peer ::1"}),
    ],
    ids=["mapped", "loopback", "private", "metadata", "IPv6 loopback"],
)
async def test_the_check_sees_each_rule_that_is_missing(tmp_path, line, peers):
    """Each line of the file is there for something; the check would notice without it."""
    async with coturn(tmp_path, leave_out=[line]) as relay:
        found = await findings_of(relay, relay.urls[0])
    assert {what for what, verdict in found.items() if verdict == "failed"} == peers


async def test_the_check_sees_a_rule_that_covers_everything(tmp_path):
    """coturn 4.6.1 takes :: for no bound."""
    async with coturn(tmp_path, more=["denied-peer-ip=::-::ffff"]) as relay:
        found = await findings_of(relay, relay.urls[0])
    assert {what for what, verdict in found.items() if verdict == "failed"} == {"public peers"}


async def test_without_ipv6_there_is_nothing_to_reach(tmp_path):
    async with coturn(tmp_path, ipv6=False) as relay:
        made = credential()
        found = await check_relay(relay.urls[0], made.username, made.credential)
    words = {finding.what: finding.words for finding in found}
    assert words["peer ::1"] == words["peer ::ffff:127.0.0.1"]
    assert words["peer ::1"] == "not reachable: the relay has no IPv6"
    assert all(finding.verdict == "ok" for finding in found)


async def test_a_relay_that_does_not_relay_is_a_failure(tmp_path):
    """Its own address is denied: two devices behind it cannot meet."""
    async with coturn(tmp_path, own_address_allowed=False) as relay:
        found = await findings_of(relay, relay.urls[0])
    assert found["data through the relay"] == "failed"


async def test_another_secret_is_a_failure(tmp_path):
    async with both(tmp_path, {"TURN_SECRET": NEW_SECRET}) as (_, control):
        program = await poolhouse("turn", "check", "--control", control.signal_url, "--json")
    assert program.process.returncode == 1
    failed = [f for f in json.loads(program.stdout) if f["verdict"] == "failed"]
    assert [finding["what"] for finding in failed] == ["allocation"] * 3
    assert "401" in failed[0]["words"]


async def test_a_certificate_that_nobody_signed_is_a_failure(tmp_path):
    async with coturn(tmp_path) as relay:
        made = credential()
        (found,) = await check_relay(relay.urls[2], made.username, made.credential)
    assert (found.what, found.verdict) == ("allocation", "failed")
    assert "certificate" in found.words


async def test_a_relay_that_is_away_is_a_failure():
    for url in ("turn:127.0.0.1:1?transport=tcp", "turn:127.0.0.1:1?transport=udp"):
        (found,) = await check_relay(url, "u", "c")
        assert found.verdict == "failed"


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({}, "204: no relay is configured"),
        ({"TURN_SECRET": OLD_SECRET, "TURN_HOST": "no host"}, "502"),
        (
            {
                "TURN_SECRET": OLD_SECRET,
                "TURN_HOST": "127.0.0.1",
                "POOLHOUSE_TURN_REQUIRE": "token",
                "POOLHOUSE_TURN_PROBE_EVERY_S": "0",
            },
            "401: an API token is needed",
        ),
    ],
)
async def test_no_credentials_is_one_sentence(env, words):
    async with running_control(env) as control:
        program = await poolhouse("turn", "check", "--control", control.signal_url)
    assert program.process.returncode == 1
    assert words in program.stderr
    assert program.stderr.count("\n") == 1


async def test_an_api_token_is_shown(tmp_path):
    env = {"POOLHOUSE_TURN_REQUIRE": "token", "POOLHOUSE_API_TOKENS": "open-sesame"}
    async with both(tmp_path, env) as (relay, control):
        program = await poolhouse(
            *("turn", "check", "--control", control.signal_url),
            *("--ca", str(relay.certificate.cert)),
            POOLHOUSE_API_TOKEN="open-sesame",
        )
    assert program.process.returncode == 0, program.stderr
    assert "open-sesame" not in program.stdout + program.stderr + control.log.getvalue()


# ---- turn config --------------------------------------------------------------------------------

CONFIG = {"POOLHOUSE_COTURN_REALM": REALM, "POOLHOUSE_TURN_SECRET": OLD_SECRET}


async def test_the_file_goes_where_it_is_wanted_and_is_private(tmp_path):
    output = tmp_path / "turnserver.conf"
    program = await poolhouse("turn", "config", "--try", "--output", str(output), **CONFIG)
    assert program.process.returncode == 0, program.stderr
    assert program.stdout == ""
    assert output.stat().st_mode & 0o777 == 0o600
    assert "holds 60 allocations at a time, enough for 3 links" in program.stderr
    printed = await poolhouse("turn", "config", **CONFIG)
    assert printed.stdout == output.read_text()
    assert MAPPED in printed.stdout


@pytest.mark.parametrize(
    ("arguments", "env", "words"),
    [
        (["--set", "extra=denied-peer-ipp=1.2.3.4"], {}, "Did you mean denied-peer-ip?"),
        (["--set", "relm=x"], {}, "no setting named 'relm'"),
        (["--set", "realm"], {}, "NAME=VALUE"),
        ([], {"POOLHOUSE_COTURN_MAX_BPSS": "1"}, "Did you mean POOLHOUSE_COTURN_MAX_BPS?"),
        (["--set", "redis_url=redis://h"], {}, "is a secret"),
    ],
)
async def test_a_mistyped_option_fails_the_rendering(tmp_path, arguments, env, words):
    output = tmp_path / "turnserver.conf"
    program = await poolhouse(
        "turn", "config", "--output", str(output), *arguments, **CONFIG, **env
    )
    assert program.process.returncode == 1
    assert words in program.stderr
    assert not output.exists()


@pytest.mark.parametrize(
    ("limits", "most"),
    [
        ({"max_bps": 1000, "bps_capacity": 3000}, 3),
        ({"max_bps": 1000, "bps_capacity": 2500}, 3),  # the last one gets what is left
        ({"max_bps": 2000, "bps_capacity": 1000}, 1),
        ({"max_bps": 0, "bps_capacity": 0, "total_quota": 2}, 2),
        ({"max_bps": 1000, "bps_capacity": 0, "total_quota": 2}, 2),
        ({"max_bps": 1000, "bps_capacity": 3000, "total_quota": 2}, 2),
    ],
)
async def test_a_relay_holds_as_many_allocations_as_its_settings_say(tmp_path, limits, most):
    assert CoturnSettings.load({}, **limits).most_allocations == most
    async with coturn(tmp_path, **limits) as relay, AsyncExitStack() as held:
        made = credential()
        for _ in range(most):
            url = parse_relay_url(relay.urls[0])
            await held.enter_async_context(allocated(url, made.username, made.credential))
        with pytest.raises(TurnRefused) as refused:
            await takes(relay, (made.username, made.credential))
        assert refused.value.code == 486


# ---- live rotation ------------------------------------------------------------------------------


async def newest(control: RunningControl) -> tuple[str, str]:
    async with httpx.AsyncClient(trust_env=False) as client:
        answer = await client.post(
            control.signal_url + "api/turn", headers={"origin": control.origin}
        )
    server = answer.json()["iceServers"][0]
    return server["username"], server["credential"]


async def until_signed_with(control: RunningControl, secret: str) -> tuple[str, str]:
    async with asyncio.timeout(15):
        while True:
            username, password = await newest(control)
            digest = hmac.digest(secret.encode(), username.encode(), "sha1")
            if base64.b64encode(digest).decode() == password:
                return username, password
            await asyncio.sleep(0.2)


async def test_a_rotation_through_sqlite_while_everything_runs(tmp_path):
    secret_file = tmp_path / "secret"
    secret_file.write_text(OLD_SECRET + "\n")
    SqliteStore(str(tmp_path / "turndb"), REALM).add(OLD_SECRET)
    env = {
        "POOLHOUSE_COTURN_REALM": REALM,
        "POOLHOUSE_COTURN_SECRETS": "sqlite",
        "POOLHOUSE_COTURN_USERDB": str(tmp_path / "turndb"),
        "POOLHOUSE_TURN_SECRET_FILE": str(secret_file),
    }
    files = {"POOLHOUSE_TURN_SECRET_FILE": str(secret_file), "TURN_RATE": "1000"}
    async with both(tmp_path, files, secrets=(), secrets_in="sqlite") as (relay, control):
        await rotation(relay, control, env, lambda: secret_file.read_text().split())


@pytest.mark.redis
async def test_a_rotation_through_redis_while_everything_runs(tmp_path):
    async with redis_server(tmp_path) as redis:
        url = redis.url
        env = {
            "POOLHOUSE_COTURN_REALM": REALM,
            "POOLHOUSE_COTURN_SECRETS": "redis",
            "POOLHOUSE_COTURN_REDIS_URL": url,
        }
        first = await poolhouse("turn", "rotate", **env)
        assert first.process.returncode == 0, first.stderr
        control_env = {
            "POOLHOUSE_TURN_SECRET_REDIS_URL": url,
            "POOLHOUSE_TURN_REALM": REALM,
            "TURN_RATE": "1000",
            "TURN_SECRET": "",
        }
        said = {"secrets": (), "secrets_in": "redis", "redis_url": url}
        with Redis.from_url(url, decode_responses=True) as client:
            async with both(tmp_path, control_env, **said) as (relay, control):
                key = f"poolhouse/turn/{REALM}/secrets"
                await rotation(relay, control, env, lambda: client.lrange(key, 0, -1))


async def rotation(
    relay: Coturn,
    control: RunningControl,
    env: dict[str, str],
    secrets: Callable[[], list[str]],
) -> None:
    """Old credentials stay valid, new ones are issued; after retiring the old ones end."""
    (first,) = secrets()
    old = await until_signed_with(control, first)
    assert await takes(relay, old)
    program = await poolhouse("turn", "rotate", "--json", **env)
    assert program.process.returncode == 0, program.stderr
    assert json.loads(program.stdout) == {"kept": 2, "removed": 0}
    second, kept = secrets()
    assert kept == first
    assert second not in program.stdout + program.stderr
    assert await takes(relay, old)
    new = await until_signed_with(control, second)
    assert await takes(relay, new)
    assert await takes(relay, old)
    early = await poolhouse("turn", "rotate", "--retire", **env)
    assert early.process.returncode == 1
    assert "--force" in early.stderr
    assert await takes(relay, old)
    forced = await poolhouse("turn", "rotate", "--retire", "--force", **env)
    assert forced.process.returncode == 0, forced.stderr
    assert not await takes(relay, old)
    assert await takes(relay, new)


async def test_static_secrets_cannot_change_while_it_runs():
    env = {"POOLHOUSE_COTURN_REALM": REALM}
    program = await poolhouse("turn", "rotate", **env)
    assert program.process.returncode == 1
    assert "SQLite or Redis" in program.stderr


# ---- what else the service relies on ------------------------------------------------------------


async def test_both_static_secrets_are_good_and_another_is_not(tmp_path):
    async with coturn(tmp_path, secrets=(NEW_SECRET, OLD_SECRET)) as relay:
        assert await can_allocate(relay, NEW_SECRET)
        assert await can_allocate(relay, OLD_SECRET)
        assert not await can_allocate(relay, "x" * 32)
        assert not await can_allocate(relay, NEW_SECRET, ttl_s=-10)


async def test_the_quota_counts_by_label(tmp_path):
    async with coturn(tmp_path, user_quota=1) as relay, AsyncExitStack() as stack:
        url = parse_relay_url(relay.urls[0])

        async def hold(label: str, ttl_s: int) -> None:
            made = credential(label=label, ttl_s=ttl_s)
            await stack.enter_async_context(allocated(url, made.username, made.credential))

        await hold("one", 600)
        with pytest.raises(TurnRefused, match="486"):
            await hold("one", 700)
        await hold("two", 600)


async def test_the_health_probe_knows_a_real_relay(tmp_path):
    async with coturn(tmp_path) as relay:
        assert await probe("127.0.0.1", relay.port)
    assert not await probe("127.0.0.1", relay.port, timeout_s=0.7)
