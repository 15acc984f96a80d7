"""Server addresses as a person writes them."""

import pytest

from poolhouse_node.rtc.open import parse_servers
from poolhouse_node.rtc.peer import RtcError


@pytest.mark.parametrize(
    ("spec", "host", "port", "secure"),
    [
        ("room.example.org", "room.example.org", 443, True),
        ("room.example.org/signal", "room.example.org", 443, True),
        ("[2001:db8::1]", "[2001:db8::1]", 443, True),
        ("attic.local:8080", "attic.local", 8080, False),
        ("127.0.0.1:8080", "127.0.0.1", 8080, False),
        ("[::1]:8080", "[::1]", 8080, False),
        ("https://room.example.org", "room.example.org", 443, True),
        ("wss://room.example.org:8443/x", "room.example.org", 8443, True),
        ("http://attic.local", "attic.local", 80, False),
    ],
)
def test_a_name_without_a_port_is_a_public_server_with_tls(spec, host, port, secure):
    (server,) = parse_servers([spec])
    assert (server.host, server.port, server.secure) == (host, port, secure)


@pytest.mark.parametrize("spec", ["", "http://", "a b", "ftp://x", "host:0", "host:99999"])
def test_other_text_is_no_server(spec):
    with pytest.raises(RtcError, match="is not a signaling server"):
        parse_servers([spec])
