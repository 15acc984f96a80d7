"""Whose request it is, behind proxies and with addresses of every kind."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_control.relay.clients import NOBODY, ClientAddresses, subject

PROXIES = ClientAddresses(["10.0.0.0/8", "::1/128"])


@pytest.mark.parametrize(
    ("peer", "real_ip", "forwarded_for", "client"),
    [
        ("203.0.113.9", "1.1.1.1", "2.2.2.2", "203.0.113.9"),
        ("10.0.0.1", "1.1.1.1", "2.2.2.2", "1.1.1.1"),
        ("10.0.0.1", "1.1.1.1, 3.3.3.3", None, "1.1.1.1"),
        ("10.0.0.1", None, "2.2.2.2", "2.2.2.2"),
        ("10.0.0.1", None, "9.9.9.9, 2.2.2.2", "2.2.2.2"),
        ("10.0.0.1", None, "9.9.9.9, 2.2.2.2, 10.1.1.1", "2.2.2.2"),
        ("10.0.0.1", None, "10.1.1.1,10.2.2.2", "10.1.1.1"),
        ("10.0.0.1", None, " , ", "10.0.0.1"),
        ("10.0.0.1", None, None, "10.0.0.1"),
        ("::1", "2001:db8::1", None, "2001:db8::1"),
        ("::ffff:10.0.0.1", "1.1.1.1", None, "1.1.1.1"),
        (None, "1.1.1.1", None, NOBODY),
        ("", "1.1.1.1", None, NOBODY),
    ],
)
def test_the_client(
    peer: str | None, real_ip: str | None, forwarded_for: str | None, client: str
) -> None:
    assert PROXIES.of(peer, real_ip, forwarded_for) == client


@pytest.mark.parametrize(
    ("address", "name"),
    [
        ("203.0.113.9", "203.0.113.9"),
        ("203.0.113.9:8080", "203.0.113.9"),
        ("::ffff:203.0.113.9", "203.0.113.9"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("[2001:db8:1:2::9]:443", "2001:db8:1:2::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("nonsense", NOBODY),
        ("", NOBODY),
    ],
)
def test_the_bucket(address: str, name: str) -> None:
    assert subject(address) == name


@given(st.text(max_size=60), st.text(max_size=60))
def test_any_header_gives_a_bounded_name(real_ip: str, forwarded_for: str) -> None:
    name = subject(PROXIES.of("10.0.0.1", real_ip, forwarded_for))
    assert len(name) <= 45
    assert name.isprintable()
