"""Addresses of signaling servers (liveness, section 12)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.wire.servers import CLOUD, SignalServer, parse_server
from tests.support import wire_vectors as vectors

CASES = vectors.load("codes.json")["signal_servers"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['spec']} {case['page_secure']}")
def test_reads_as_the_vector(case: dict) -> None:
    server = parse_server(case["spec"], page_secure=case["page_secure"])
    if case["parsed"] is None:
        assert server is None
    else:
        assert server is not None
        assert {name: getattr(server, name) for name in case["parsed"]} == case["parsed"]


def test_the_public_server_has_an_address() -> None:
    assert parse_server("cloud", page_secure=False) == CLOUD
    assert (CLOUD.host, CLOUD.port, CLOUD.path, CLOUD.secure) == ("0.peerjs.com", 443, "/", True)


def test_the_parts_of_a_server() -> None:
    assert parse_server(" WSS://S.Example.org:8443/a/b ", page_secure=False) == SignalServer(
        "wss://s.example.org:8443/a/b", "s.example.org:8443", "s.example.org", 8443, "/a/b/", True
    )


@pytest.mark.parametrize(
    "spec",
    [
        "host:0",
        "host:",
        "host:123456",
        "http://",
        "http://user@host",
        "host/path?query",
        "host/a b",
        "[::1",
        "[x]:9000",
        "-host",
        "h" * 600,
    ],
)
def test_what_is_no_server(spec: str) -> None:
    assert parse_server(spec, page_secure=True) is None


@given(st.text(max_size=30) | st.from_regex(r"(wss?://)?[a-z.]{1,9}(:\d{1,5})?(/[a-z]{1,4})*/?"))
def test_a_canonical_spec_reads_back_to_the_same_server(spec: str) -> None:
    for page_secure in (True, False):
        server = parse_server(spec, page_secure=page_secure)
        if server is not None:
            assert parse_server(server.spec, page_secure=page_secure) == server
            assert 1 <= server.port <= 65535
            assert server.path.startswith("/")
            assert server.path.endswith("/")
