"""CORS of signaling (signaling, 1.1)."""

from __future__ import annotations

import pytest

from poolhouse_control.signaling.origins import cors_headers, is_listed

LIST = ("https://room.example",)
ALLOW = b"access-control-allow-origin"


def test_any_origin_is_echoed_without_a_list() -> None:
    assert dict(cors_headers("https://a.example", ())) == {
        b"vary": b"Origin",
        ALLOW: b"https://a.example",
    }


def test_no_origin_gets_no_permission() -> None:
    assert dict(cors_headers(None, ())) == {b"vary": b"Origin"}


def test_a_listed_origin_is_echoed_as_it_came() -> None:
    assert dict(cors_headers("https://ROOM.example", LIST))[ALLOW] == b"https://ROOM.example"


def test_an_unlisted_origin_gets_no_permission() -> None:
    assert dict(cors_headers("https://evil.example", LIST)) == {b"vary": b"Origin"}


def test_a_preflight_names_methods_and_what_it_varies_by() -> None:
    headers = dict(cors_headers("https://a", (), preflight=True))
    assert headers[b"access-control-allow-methods"] == b"GET,HEAD,PUT,PATCH,POST,DELETE"
    assert headers[b"vary"] == b"Origin, Access-Control-Request-Headers"


@pytest.mark.parametrize(
    ("origin", "allowed", "listed"),
    [
        (None, LIST, True),
        ("https://room.example", LIST, True),
        ("http://room.example", LIST, False),
        ("https://room.example.evil", LIST, False),
        ("", LIST, False),
        ("https://x", (), True),
    ],
)
def test_the_list(origin: str | None, allowed: tuple[str, ...], listed: bool) -> None:
    assert is_listed(origin, allowed) is listed
