"""What a Markdown page shows in fences, and what a fence says about itself to the tests.

The words stand behind the language of a fence. CONTRIBUTING, "Commands in pages", has the list.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["ROOT", "VERBS", "Block", "blocks", "pattern_of", "with_what_was_shown"]

ROOT = Path(__file__).resolve().parents[2]
VERBS: Mapping[str, frozenset[str]] = {
    "run": frozenset({"on", "terminal", "until", "status"}),
    "not-run": frozenset(),
    "shows": frozenset({"on", "terminal"}),
    "types": frozenset({"on", "terminal", "until"}),
}
"""What a fence may say, and with which options."""

_FENCE = re.compile(
    r"^```(?P<language>[a-z]+)(?P<words>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_WORD = re.compile(r'\s*(?P<name>[a-z-]+)(?:="(?P<value>[^"]*)")?')
_ANY = "…"
_DECIMAL = re.compile(r"\d+\.\d+")


@dataclass(frozen=True, slots=True)
class Block:
    """One fence. Without a verb it has nothing for tests to do."""

    page: str
    line: int
    language: str
    verb: str
    text: str
    reason: str = ""
    """Why it is not run."""
    options: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def places(self) -> list[tuple[str, str]]:
        """Machines, and the terminal there."""
        terminal = self.options.get("terminal", "1")
        return [(name, terminal) for name in self.options.get("on", "").split() or [""]]


def blocks(page: str) -> list[Block]:
    """The fences of a page, in order. Raises :class:`ValueError` for words that mean nothing."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [_block(page, text, found) for found in _FENCE.finditer(text)]


def _block(page: str, text: str, found: re.Match[str]) -> Block:
    line = text.count("\n", 0, found.start()) + 1
    verb, value, options = _words(found["words"].strip(), f"{page}:{line}")
    return Block(page, line, found["language"], verb, found["text"], value, options)


def _words(words: str, where: str) -> tuple[str, str, dict[str, str]]:
    said: dict[str, str] = {}
    while words:
        if (word := _WORD.match(words)) is None:
            raise ValueError(f"{where}: {words!r} cannot be read")
        said[word["name"]] = word["value"] or ""
        words = words[word.end() :]
    if not said:
        return "", "", {}
    verb = next(iter(said))
    value = said.pop(verb)
    if verb not in VERBS or not said.keys() <= VERBS[verb]:
        raise ValueError(f"{where}: {[verb, *said]} are no words for the tests")
    if (verb == "not-run") != bool(value):
        raise ValueError(f'{where}: a reason belongs to not-run, and only there: not-run="..."')
    return verb, value, said


def pattern_of(line: str) -> re.Pattern[str]:
    """Finds a shown line on a screen: ``…`` is anything, ``3.9`` any such number."""
    parts = [_pattern_of_part(part) for part in line.split(_ANY)]
    return re.compile(".*?".join(parts))


def _pattern_of_part(part: str) -> str:
    words = re.split(r"(\s+)", part)
    return "".join(r"\s+" if word.isspace() else _pattern_of_word(word) for word in words if word)


def _pattern_of_word(word: str) -> str:
    return r"\d+\.\d+".join(re.escape(piece) for piece in _DECIMAL.split(word))


def with_what_was_shown(text: str, screens: str) -> str:
    """A command as it is typed: a word that ends in ``…`` is the one that was shown before."""

    def shown(found: re.Match[str]) -> str:
        words = re.findall(re.escape(found[1]) + r"[^\s'\"]+", screens)
        if not words:
            raise ValueError(f"nothing like {found[0]!r} was shown before it is typed")
        return str(words[-1])

    return re.sub(rf"([^\s'\"]+){_ANY}", shown, text)
