"""The rendered ``turnserver.conf``: safe by default, and nothing in it that coturn ignores."""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_control.errors import SettingsError
from poolhouse_control.relay.coturn import redis_userdb, render
from poolhouse_control.relay.coturn_options import FORBIDDEN, problems_in
from poolhouse_control.relay.coturn_settings import CoturnSettings, describe
from poolhouse_control.relay.coturn_trial import try_with_coturn
from poolhouse_control.relay.denied import DENIED_RANGES

SECRET = "0123456789abcdef" * 2
OTHER = "fedcba9876543210" * 2
REALM = {"realm": "turn.example.org"}


def rendered(*, secrets: tuple[str, ...] = (SECRET,), labels: bool = False, **said: Any) -> str:
    return render(CoturnSettings.load({}, **(REALM | said)), secrets=secrets, labels=labels)


def lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line and not line.startswith("#")]


def test_the_default_file() -> None:
    found = lines(rendered())
    assert {
        "realm=turn.example.org",
        "use-auth-secret",
        f"static-auth-secret={SECRET}",
        "total-quota=1200",
        "max-bps=1000000",
        "bps-capacity=60000000",
        "no-cli",
        "no-tcp-relay",
        "no-multicast-peers",
        "no-tls",
        "no-dtls",
        "fingerprint",
        "stale-nonce=600",
    } <= set(found)
    assert not [line for line in found if line.partition("=")[0] in FORBIDDEN]
    assert not any(line.startswith(("user-quota", "allowed-peer-ip", "lt-cred")) for line in found)


def denies(text: str, address: str) -> bool:
    wanted = ipaddress.ip_address(address)
    ranges = [line.partition("=")[2] for line in lines(text) if line.startswith("denied-peer-ip=")]
    for first, _, last in (each.partition("-") for each in ranges):
        low, high = ipaddress.ip_address(first), ipaddress.ip_address(last)
        if low.version == wanted.version and int(low) <= int(wanted) <= int(high):
            return True
    return False


INSIDE = """
    0.0.0.0 0.1.2.3 10.0.0.1 10.255.255.255 100.64.0.1 127.0.0.1 127.1.2.3 169.254.169.254
    172.16.0.1 172.31.255.255 192.0.0.8 192.168.0.1 198.18.0.1 240.0.0.1 255.255.255.255
    ::1 ::2 ::127.0.0.1 ::ffff:127.0.0.1 ::ffff:10.0.0.1 ::ffff:8.8.8.8 64:ff9b::7f00:1
    64:ff9b:1::1 2001::1 2002:7f00:1:: fc00::1 fd12:3456::1 fe80::1 fec0::1
"""


@pytest.mark.parametrize("address", INSIDE.split())
def test_what_is_inside_is_denied(address: str) -> None:
    assert denies(rendered(), address)


@pytest.mark.parametrize("address", ["8.8.8.8", "172.32.0.1", "100.128.0.1", "2a00:1450::1"])
def test_what_is_public_is_not(address: str) -> None:
    assert not denies(rendered(), address)


@given(st.ip_addresses())
def test_whatever_python_calls_private_is_denied(
    address: ipaddress.IPv4Address | ipaddress.IPv6Address,
) -> None:
    # coturn refuses :: by its own rule, and a range from there would refuse all of IPv4.
    if address.is_private and str(address) != "::":
        assert denies(rendered(), str(address))


def test_tls_needs_both_files() -> None:
    found = lines(rendered(tls_cert="/c.pem", tls_key="/k.pem", tls_port="443"))
    assert {"cert=/c.pem", "pkey=/k.pem", "tls-listening-port=443", "no-tlsv1", "no-tlsv1_1"} <= {
        *found
    }
    assert "no-tls" not in found
    with pytest.raises(SettingsError, match="TLS needs both"):
        rendered(tls_cert="/c.pem")


def test_addresses_and_nat() -> None:
    found = lines(
        rendered(
            listening_ips="203.0.113.10",
            relay_ips=["10.0.0.5", "2001:db8::5"],
            external_ips="203.0.113.10/10.0.0.5",
            allowed_peers="10.0.0.5",
        )
    )
    assert "listening-ip=203.0.113.10" in found
    assert found.count("relay-ip=10.0.0.5") == found.count("relay-ip=2001:db8::5") == 1
    assert "external-ip=203.0.113.10/10.0.0.5" in found
    assert "allowed-peer-ip=10.0.0.5" in found


def test_two_secrets_during_a_rotation() -> None:
    found = lines(rendered(secrets=(SECRET, OTHER)))
    assert [line for line in found if line.startswith("static")] == [
        f"static-auth-secret={SECRET}",
        f"static-auth-secret={OTHER}",
    ]


@pytest.mark.parametrize("kind", ["sqlite", "redis"])
def test_secrets_in_a_database_are_not_in_the_file(kind: str) -> None:
    """A static secret that is left behind stays valid after the database was rotated."""
    coturn = CoturnSettings.load(
        {"POOLHOUSE_COTURN_REDIS_URL": "redis://:pass%20word@r:6380/2".replace("%20", "")},
        secrets=kind,
        userdb="/db",
        **REALM,
    )
    text = render(coturn, secrets=(SECRET,))
    assert SECRET not in text
    userdb = {
        "sqlite": "userdb=/db",
        "redis": 'redis-userdb="ip=r dbname=2 password=password port=6380 connect_timeout=5"',
    }
    assert userdb[kind] in lines(text)
    assert ("userdb=/db" in lines(text)) is (kind == "sqlite")


@pytest.mark.parametrize(
    "url", ["", "http://h", "redis://", "redis://h/x", "redis://u:p@h", "redis://h:99999"]
)
def test_other_addresses_of_redis(url: str) -> None:
    with pytest.raises(SettingsError, match="must be redis://"):
        redis_userdb(url)


@pytest.mark.parametrize("password", ["a%20b", "a%22b"])
def test_a_password_that_coturn_cannot_read(password: str) -> None:
    with pytest.raises(SettingsError, match="password"):
        redis_userdb(f"redis://:{password}@h")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"realm": ""}, "REALM is missing"),
        ({"secrets": ()}, "one or two secrets, not 0"),
        ({"secrets": (SECRET, OTHER, SECRET)}, "one or two secrets, not 3"),
        ({"secrets": ("short",)}, "has 5 characters"),
        ({"secrets": (SECRET + " x",)}, "spaces, quotes"),
        ({"user_quota": 12}, "counts by label"),
        ({"max_bps": 0}, "set it, or the capacity to 0"),
        ({"min_port": 50_000, "max_port": 50_100}, "only 100 relay ports"),
        ({"min_port": 50_000, "max_port": 49_000}, "only 0 relay ports"),
        ({"extra": "denied-peer-ipp=10.0.0.1"}, "Did you mean denied-peer-ip?"),
        ({"extra": "no-clii"}, "Did you mean no-cli?"),
        ({"extra": "prometheus"}, "not an option of coturn"),
        ({"extra": "server-relay"}, "not allowed"),
        ({"extra": "allow-loopback-peers"}, "not allowed"),
        ({"extra": "web-admin"}, "not allowed"),
        ({"extra": "oauth"}, "not allowed"),
        ({"extra": "user=a:b"}, "not allowed"),
        ({"extra": "no-auth"}, "not allowed"),
        ({"extra": "relay-threads=many"}, "coturn would read 0"),
        ({"extra": "relay-threads"}, "needs a value"),
        ({"extra": "verbose=1"}, "takes no value"),
        ({"extra": "total-quota=1"}, "stands twice"),
        ({"extra": "denied-peer-ip=10.0.0.0/8"}, "FIRST-LAST"),
        ({"extra": "denied-peer-ip=10.0.0.9-10.0.0.1"}, "FIRST-LAST"),
        ({"extra": "denied-peer-ip=10.0.0.9-::1"}, "FIRST-LAST"),
        ({"extra": "denied-peer-ip=::-::ffff"}, "refuse every IPv4 peer"),
        ({"extra": "denied-peer-ip=::"}, "refuse every IPv4 peer"),
        ({"allowed_peers": "127.0.0.1"}, "opens this machine"),
        ({"allowed_peers": "0.0.0.0-255.255.255.255"}, "opens this machine"),
        ({"allowed_peers": "::ffff:8.8.8.8"}, "opens this machine"),
        ({"allowed_peers": "169.254.169.254"}, "opens this machine"),
        ({"allowed_peers": "10/8"}, "FIRST-LAST"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_what_is_refused(said: dict[str, Any], words: str) -> None:
    with pytest.raises(SettingsError) as error:
        rendered(**said)
    assert words in str(error.value)
    assert SECRET not in str(error.value)


@pytest.mark.parametrize(
    ("variable", "words"),
    [
        ("POOLHOUSE_COTURN_REALN", "Did you mean POOLHOUSE_COTURN_REALM?"),
        ("POOLHOUSE_COTURN_DENIED_PEER_IP", "There is no setting"),
    ],
)
def test_a_variable_that_is_no_setting_is_refused(variable: str, words: str) -> None:
    with pytest.raises(SettingsError) as error:
        CoturnSettings.load({variable: "x"})
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("realm", "a b"),
        ("realm", "a\nserver-relay"),
        ("tls_cert", "/a b"),
        ("pidfile", "/a\nserver-relay"),
        ("extra", "verbose\nserver-relay"),
        ("allowed_peers", "8.8.8.8\nserver-relay"),
        ("listening_ips", "relay.example.org"),
        ("external_ips", "1.2.3.4/host"),
        ("port", "0"),
        ("max_bps", "fast"),
        ("secrets", "etcd"),
    ],
)
def test_values_that_are_no_values(name: str, value: str) -> None:
    with pytest.raises(SettingsError):
        CoturnSettings.load({}, **{name: value})


@given(st.text(max_size=80))
def test_no_text_makes_two_lines_of_one_setting(value: str) -> None:
    try:
        text = rendered(extra=value, pidfile=value)
    except SettingsError:
        return
    assert not problems_in(text)
    assert not [line for line in lines(text) if line.partition("=")[0] in FORBIDDEN]


def test_a_file_without_denials_is_a_problem() -> None:
    assert problems_in("no-cli\n") == [
        "No denied-peer-ip: the relay would reach everything its machine reaches."
    ]


def test_each_range_says_what_it_is() -> None:
    assert all(what and "-" in span for what, span in DENIED_RANGES)
    assert len({span for _, span in DENIED_RANGES}) == len(DENIED_RANGES)


def test_every_setting_is_documented_and_the_secret_one_hidden() -> None:
    assert all(key.doc.endswith(".") for key in describe())
    coturn = CoturnSettings.load({"POOLHOUSE_COTURN_REDIS_URL": "redis://:sesame@h"})
    assert "sesame" not in repr(coturn)


@pytest.mark.coturn
@pytest.mark.parametrize("secrets", ["static", "sqlite", "redis"])
async def test_coturn_itself_takes_every_line(secrets: str) -> None:
    coturn = CoturnSettings.load(
        {"POOLHOUSE_COTURN_REDIS_URL": "redis://h"},
        secrets=secrets,
        user_quota=12,
        tls_cert="/c",
        tls_key="/k",
        verbose=True,
        **REALM,
    )
    assert await try_with_coturn(render(coturn, secrets=(SECRET, OTHER), labels=True)) == []


@pytest.mark.coturn
async def test_the_trial_sees_what_coturn_ignores() -> None:
    complaints = await try_with_coturn(rendered() + "denied-peer-ipp=1.2.3.4\n")
    assert complaints == ["Bad configuration format: denied-peer-ipp"]


async def test_without_coturn_there_is_no_trial() -> None:
    with pytest.raises(SettingsError, match="is not on this machine"):
        await try_with_coturn(rendered(), program="no-such-turnserver")
