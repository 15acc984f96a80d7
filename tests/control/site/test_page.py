"""The page for people at the address of signaling, and the card for programs."""

from __future__ import annotations

import base64
import hashlib
import re

import httpx
import pytest

from poolhouse_control.site.page import Part, render, security_headers, wants_page
from tests.support.control import running_control

BROWSER = "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,*/*;q=0.8"


@pytest.mark.parametrize(
    ("accept", "wanted"),
    [
        (BROWSER, True),
        ("text/html", True),
        ("application/json, TEXT/HTML;q=0.5", True),
        ("", False),
        ("*/*", False),
        ("application/json", False),
        ("text/plain, text/html-sandboxed", False),
        ("text/html;q=0", False),
        ("text/html; q=0.0, */*", False),
    ],
)
def test_only_who_names_html_gets_the_page(accept: str, wanted: bool) -> None:
    assert wants_page(accept) is wanted


def test_what_is_said_is_escaped() -> None:
    text = render([Part("<b>", False, "a & b")], signal_url='https://x/"><script>')
    assert "<script" not in text
    assert "&lt;b&gt;" in text
    assert "a &amp; b" in text


def test_the_policy_names_the_style_and_nothing_else() -> None:
    text = render([], signal_url="https://room.example")
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = security_headers()["content-security-policy"]
    assert f"style-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    for outside in ("<script", "<link", "<img", "src=", "url(", "style="):
        assert outside not in text


async def test_people_get_the_page_and_programs_the_card() -> None:
    async with (
        running_control(public_url="https://room.example") as control,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        page = await http.get(control.signal_url, headers={"accept": BROWSER})
        card = await http.get(control.signal_url, headers={"accept": "application/json"})
    assert page.headers["content-type"].startswith("text/html")
    assert page.headers["vary"].lower().count("accept") >= 1
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert "takes devices." in page.text
    assert "is the memory of this one process." in page.text
    assert "is not set up" in page.text
    assert "poolhouse join CODE --signal https://room.example" in page.text
    assert card.json()["website"] == "https://room.example"
    assert card.headers["vary"].lower().count("accept") >= 1


async def test_without_a_public_address_the_one_that_was_asked_is_told() -> None:
    async with (
        running_control(path="signal") as control,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        page = await http.get(control.signal_url, headers={"accept": BROWSER})
    assert f"--signal {control.signal_url}" in page.text


async def test_a_relay_is_mentioned() -> None:
    async with (
        running_control(
            {"POOLHOUSE_TURN_SECRET": "s"}, turn_urls="turn:relay.example:3478?transport=tcp"
        ) as control,
        httpx.AsyncClient(trust_env=False) as http,
    ):
        page = await http.get(control.signal_url, headers={"accept": BROWSER})
    assert "is there for devices without a direct path" in page.text
