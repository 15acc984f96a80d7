"""Room codes, invite keys and links (joining, section 1)."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.wire.codes import (
    ALPHABET,
    Invite,
    code_from_page,
    format_code,
    host_peer_id,
    invite_link,
    key_fragment,
    key_from_fragment,
    make_code,
    parse_code,
    parse_invite,
    valid_secret,
)
from tests.support import wire_vectors as vectors

VECTORS = vectors.load("codes.json")
KEY = "k3yk3yk3yk3yk3yk3yk3yA"

# The public bridge takes the last part of the path, whatever its letters are: ROOM has an O. A
# strict reader goes on to the fragment, as the room's page does.
STRICTER = {"https://example.org/room#ABCD": Invite("ABCD")}


@pytest.mark.parametrize("case", VECTORS["parse"], ids=lambda case: repr(case["input"]))
def test_reads_codes(case: dict) -> None:
    assert parse_code(case["input"]) == case["code"]


@pytest.mark.parametrize("case", VECTORS["format"], ids=lambda case: case["code"] or "empty")
def test_shows_codes(case: dict) -> None:
    assert format_code(case["code"]) == case["shown"]


@pytest.mark.parametrize("case", VECTORS["random"], ids=lambda case: case["code"])
def test_makes_codes_of_random_bytes(case: dict) -> None:
    draws = itertools.chain([bytes(case["first_draw"])], itertools.repeat(None))

    def draw(size: int) -> bytes:
        first = next(draws)
        assert first is None or len(first) == size
        return bytes(range(size)) if first is None else first

    assert make_code(draw, case["length"]) == case["code"]


def test_the_alphabet_and_the_hosts_id() -> None:
    assert VECTORS["alphabet"] == ALPHABET
    assert host_peer_id("4TKG9P") == VECTORS["host_id_prefix"] + "4TKG9P"


@pytest.mark.parametrize("case", VECTORS["fragment"], ids=lambda case: case["fragment"] or "empty")
def test_reads_the_key_of_a_fragment(case: dict) -> None:
    assert key_from_fragment(case["fragment"]) == case["key"]


@pytest.mark.parametrize("case", VECTORS["make_fragment"], ids=lambda case: case["key"] or "empty")
def test_makes_fragments(case: dict) -> None:
    assert key_fragment(case["key"]) == case["fragment"]


@pytest.mark.parametrize("case", VECTORS["client_links"], ids=lambda case: case["input"] or "empty")
def test_reads_what_a_person_gives_to_join(case: dict) -> None:
    invite = parse_invite(case["input"])
    if case["input"] in STRICTER:
        assert invite == STRICTER[case["input"]]
    elif case["code"] is None:
        assert invite is None
    else:
        assert invite is not None
        assert (invite.code, invite.key) == (case["code"], case["key"] or "")


@pytest.mark.parametrize(
    "case", VECTORS["page_links"], ids=lambda case: case["path"] + case["query"] + case["fragment"]
)
def test_reads_the_address_of_a_page(case: dict) -> None:
    assert code_from_page(case["path"], case["query"], case["fragment"]) == case["code"]


def test_a_link_names_the_signaling_server() -> None:
    invite = parse_invite("http://localhost:8000/p2p.html?code=ABCD&signal=localhost:9000")
    assert invite == Invite("ABCD", "", "localhost:9000")


@pytest.mark.parametrize("signal", ["", "localhost:9000", "wss://s.example.org:443/a?b&c"])
@pytest.mark.parametrize("site", ["https://pool.example", "https://pool.example/"])
def test_a_link_reads_back(site: str, signal: str) -> None:
    link = invite_link(site, "4TKG9P", KEY, signal=signal)
    assert link.startswith("https://pool.example/r/4TKG9P")
    assert parse_invite(link) == Invite("4TKG9P", KEY, signal)


def test_a_guests_link_has_the_code_alone() -> None:
    assert invite_link("https://pool.example", "4TKG9P") == "https://pool.example/r/4TKG9P"


@pytest.mark.parametrize("text", ["pool.example/r/4TKG9P#k=" + KEY, f"  4TKG9P#k={KEY} "])
def test_a_link_without_its_scheme(text: str) -> None:
    assert parse_invite(text) == Invite("4TKG9P", KEY)


@pytest.mark.parametrize(
    "text", ["https://[::1", "https://x/" + "A" * 5000, "?" + "a=1&" * 100 + "code=ABCD", "\0"]
)
def test_text_that_is_no_invite(text: str) -> None:
    assert parse_invite(text) is None


@pytest.mark.parametrize("secret", [None, 5, "", "x" * 21, "x" * 65, KEY + "\n", KEY[:-1] + "é"])
def test_what_is_no_secret(secret: object) -> None:
    assert not valid_secret(secret)


@given(
    st.text(alphabet=ALPHABET, min_size=6, max_size=6) | st.text(ALPHABET, min_size=4, max_size=4)
)
def test_a_shown_code_reads_back(code: str) -> None:
    assert parse_code(format_code(code).lower()) == code


@given(st.text(max_size=60))
def test_any_text_is_a_code_or_not(text: str) -> None:
    code = parse_code(text)
    assert code == "" or (len(code) in {4, 6} and set(code) <= set(ALPHABET))
    invite = parse_invite(text)
    assert invite is None or parse_code(invite.code) == invite.code
