"""What is kept of the answer of ``POST /api/turn`` (relay, section 3)."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.rtc.peer import TurnServer
from poolhouse_node.rtc.relay_answer import (
    IceEntry,
    clean_servers,
    is_relay_url,
    is_stun_url,
    read_grant,
    split_servers,
)
from tests.support.vectors import cases, vectors

TURN = vectors("turn")
RELAY = {"urls": ["turn:r.example.org"], "username": "u", "credential": "c"}


def as_json(entries):
    return [
        {"urls": list(entry.urls)}
        | ({"username": entry.username, "credential": entry.credential} if entry.username else {})
        for entry in entries
    ]


@pytest.mark.parametrize("case", cases(TURN["clean"]))
def test_the_list_is_cleaned_as_a_page_does(case):
    assert as_json(clean_servers(case["input"])) == case["page_keeps"]


@pytest.mark.parametrize("case", cases(TURN["url_valid"], "url"))
def test_which_addresses_are_taken(case):
    entry = RELAY | {"urls": [case["url"], "turn:kept"]}
    kept = {url for each in clean_servers([entry]) for url in each.urls}
    assert (case["url"] in kept) is case["server_answer"]
    assert is_relay_url(case["url"].strip()) is case["user_setting"]


def test_a_good_answer_keeps_its_order_and_both_kinds():
    stun = {"urls": "stun:s.example.org:3478", "username": "left", "credential": "out"}
    both = RELAY | {"urls": ["turn:r:1", "stun:s2", "turns:r:2?transport=tcp", "ftp:x", 7]}
    entries = clean_servers([stun, both, None, {"urls": {}}, RELAY | {"credential": ""}])
    assert entries == [
        IceEntry(("stun:s.example.org:3478",)),
        IceEntry(("turn:r:1", "stun:s2", "turns:r:2?transport=tcp"), "u", "c"),
    ]
    assert split_servers(entries) == (
        ("stun:s.example.org:3478", "stun:s2"),
        (TurnServer("turn:r:1", "u", "c"), TurnServer("turns:r:2?transport=tcp", "u", "c")),
    )


def test_a_list_is_bounded():
    many = [RELAY | {"urls": [f"turn:r:{n}" for n in range(1000)]} for _ in range(1000)]
    assert sum(len(entry.urls) for entry in clean_servers(many)) == 256
    assert clean_servers([RELAY | {"username": "u" * 2000}]) == []
    assert clean_servers([RELAY | {"urls": "turn:" + "h" * 2000}]) == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"null",
        b"{",
        b"\xff\xfe",
        b'{"iceServers": 5}',
        b'{"iceServers": [{"urls": "stun:s"}]}',
        b'{"iceServers": ' + b"[" * 5000,
    ],
    ids=lambda body: body[:20].decode("latin-1") or "empty",
)
def test_a_body_without_a_relay_is_nothing(body):
    assert read_grant(body) is None


def test_the_life_is_read():
    grant = read_grant(json.dumps({"iceServers": [RELAY], "ttl": 600, "provider": "x"}).encode())
    assert (grant.life_s, grant.stun) == (600, ())
    assert grant.turn == (TurnServer("turn:r.example.org", "u", "c"),)
    assert read_grant(json.dumps({"iceServers": [RELAY], "ttl": "soon"}).encode()).life_s == 3600


def test_credentials_do_not_show():
    grant = read_grant(json.dumps({"iceServers": [RELAY | {"credential": "hush"}]}).encode())
    assert "hush" not in repr(grant)
    assert "hush" not in repr(clean_servers([RELAY | {"credential": "hush"}]))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9) | st.just("turn:h"),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.sampled_from(["urls", "username", "credential", "x"]), inner)
    ),
    max_leaves=20,
)


@given(JSON)
def test_whatever_comes_what_is_kept_is_well_formed(value):
    kept = clean_servers(value)
    assert not kept or any(is_relay_url(url) for entry in kept for url in entry.urls)
    for entry in kept:
        assert all(is_relay_url(url) or is_stun_url(url) for url in entry.urls)
        assert not any(map(is_relay_url, entry.urls)) or (entry.username and entry.credential)


@given(st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_none(body):
    assert read_grant(body) is None
