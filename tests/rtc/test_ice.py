"""Settings for paths (relay, section 1)."""

import pytest

from poolhouse_node.rtc import ice
from poolhouse_node.rtc.ice import PUBLIC_STUN, build_ice_settings, is_relay_url
from poolhouse_node.rtc.open import parse_servers
from poolhouse_node.rtc.peer import RtcError, TurnServer

HERE = parse_servers(["localhost:9000"])
AWAY = parse_servers(["wss://signal.example.org"])
RELAY = TurnServer("turn:relay.example.org:3478?transport=udp", "user", "secret")


def test_no_stun_server_is_asked_through_a_server_on_this_machine():
    assert build_ice_settings(HERE).stun == ()
    assert build_ice_settings(AWAY).stun == PUBLIC_STUN
    assert build_ice_settings(HERE + AWAY).stun == PUBLIC_STUN
    assert build_ice_settings(AWAY, stun=["stun:[::1]:3478"]).stun == ("stun:[::1]:3478",)


@pytest.mark.parametrize(
    ("servers", "network", "bind"),
    [(HERE, True, None), (HERE, False, "127.0.0.1"), (AWAY, False, None), (AWAY, True, None)],
)
def test_without_any_network_rooms_of_this_machine_use_loopback(
    monkeypatch, servers, network, bind
):
    monkeypatch.setattr(ice, "_has_network", lambda: network)
    assert build_ice_settings(servers).bind == bind
    assert build_ice_settings(servers, bind="10.0.0.5").bind == "10.0.0.5"


def test_relay_only_needs_a_relay():
    assert not build_ice_settings(AWAY, relay_only=True).relay_only
    settings = build_ice_settings(AWAY, turn=[RELAY], relay_only=True)
    assert settings.relay_only
    assert settings.turn == (RELAY,)


@pytest.mark.parametrize(
    ("url", "good"),
    [
        ("turn:relay.example.org", True),
        ("TURNS:10.0.0.1:5349?transport=tcp", True),
        ("turn:[2001:db8::1]:3478", True),
        ("turn:user@relay", False),
        ("turn://relay", False),
        ("turn:relay:123456", False),
        ("turn:relay?transport=sctp", False),
        ("stun:relay", False),
        ("turn:", False),
        ("", False),
    ],
)
def test_relay_urls(url, good):
    assert is_relay_url(url) is good
    if not good:
        with pytest.raises(RtcError):
            build_ice_settings(AWAY, turn=[TurnServer(url, "u", "c")])


@pytest.mark.parametrize("stun", ["turn:x", "stun://x", "http://x"])
def test_a_bad_stun_url_is_named(stun):
    with pytest.raises(RtcError, match="STUN"):
        build_ice_settings(AWAY, stun=[stun])


@pytest.mark.parametrize("port_range", [(1, 2), (5000, 4000), (65000, 70000)])
def test_a_range_that_is_none_is_refused(port_range):
    with pytest.raises(RtcError, match="range"):
        build_ice_settings(AWAY, port_range=port_range)


def test_the_question_whether_there_is_a_network_has_an_answer():
    assert ice._has_network() in (True, False)
