"""The page of the server card: what this is, whether it is well, how to join."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from dataclasses import dataclass
from functools import cache
from importlib import resources
from string import Template
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["Part", "render", "security_headers", "wants_page"]


@dataclass(frozen=True, slots=True)
class Part:
    """One part of the control plane, for a person."""

    name: str
    is_well: bool
    sentence: str


def wants_page(accept: str) -> bool:
    """Tell a browser from a program: only browsers name HTML in ``Accept``."""
    kinds = (part.split(";") for part in accept.lower().split(","))
    return any(
        kind.strip() == "text/html" and not any(_is_zero(each) for each in parameters)
        for kind, *parameters in kinds
    )


def render(parts: Iterable[Part], *, signal_url: str) -> str:
    """Fill the page. ``signal_url`` is what devices are told as ``--signal``."""
    rows = "\n".join(
        f'<li class="{"well" if part.is_well else "ill"}"><b>{html.escape(part.name)}</b> '
        f"{html.escape(part.sentence)}</li>"
        for part in parts
    )
    return _template().substitute(parts=rows, signal_url=html.escape(signal_url))


@cache
def security_headers() -> dict[str, str]:
    """Headers of the page: it may load nothing, run nothing, and stand in no other page."""
    style = re.search(r"<style>(.*?)</style>", _template().template, re.DOTALL)
    digest = hashlib.sha256(style[1].encode() if style else b"").digest()
    policy = (
        f"default-src 'none'; style-src 'sha256-{base64.b64encode(digest).decode()}'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return {
        "content-security-policy": policy,
        "x-content-type-options": "nosniff",
        "referrer-policy": "no-referrer",
        "cache-control": "no-store",
    }


def _is_zero(parameter: str) -> bool:
    name, _, value = parameter.partition("=")
    return name.strip() == "q" and re.fullmatch(r"0(\.0*)?", value.strip()) is not None


@cache
def _template() -> Template:
    file = resources.files("poolhouse_control.site") / "index.html"
    return Template(file.read_text(encoding="utf-8"))
