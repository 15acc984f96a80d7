"""What a PromQL expression names. Whether it is one, promtool says."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Selector", "selectors", "without_variables"]

_STRING = r"\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'"
_GROUPING = re.compile(
    r"\b(?:by|without|on|ignoring|group_left|group_right)\b\s*(?:\([^()]*\))?", re.IGNORECASE
)
_RANGE = re.compile(r"\[[^\]]*\]")
_WORD = re.compile(
    rf"(?P<name>[a-zA-Z_:][a-zA-Z0-9_:]*)\s*(?:\{{(?P<matchers>(?:{_STRING}|[^}}])*)\}})?(?P<call>\s*\()?"
)
_MATCHER = re.compile(rf"(?P<label>\w+)\s*(?P<operator>=~|!~|!=|=)\s*(?P<value>{_STRING})")
_KEYWORDS = {"and", "or", "unless", "bool", "offset", "inf", "nan"}
_NUMBER = re.compile(r"(?<![\w:.])\d[\w.]*")


@dataclass(frozen=True, slots=True)
class Selector:
    """A metric as a query names it: ``name{label="value"}``."""

    name: str
    matchers: tuple[tuple[str, str, str], ...] = ()
    """Label, operator and value of each."""


def selectors(expression: str) -> Iterator[Selector]:
    """Every metric that the expression reads."""
    rest = expression
    for pattern in (_GROUPING, _RANGE, _NUMBER):
        rest = _outside_strings(pattern, rest)
    for found in _WORD.finditer(rest):
        if found["call"] or found["name"].lower() in _KEYWORDS:
            continue
        matchers = tuple(
            (each["label"], each["operator"], each["value"][1:-1])
            for each in _MATCHER.finditer(found["matchers"] or "")
        )
        yield Selector(found["name"], matchers)


def without_variables(expression: str, rate_interval: str = "5m") -> str:
    """The expression with something sensible in the place of Grafana's variables."""
    expression = expression.replace("$__rate_interval", rate_interval)
    expression = expression.replace("$__range", rate_interval)
    return re.sub(r"\$\w+", ".*", expression)


def _outside_strings(pattern: re.Pattern[str], text: str) -> str:
    """Remove what matches, but leave strings as they are."""
    either = re.compile(f"({_STRING})|(?:{pattern.pattern})", pattern.flags)
    return either.sub(lambda found: found[1] or " ", text)
