"""The checklist of the chart names tests: they exist, and every tick has one."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "reference" / "chart-checklist.md").read_text(encoding="utf-8")
LINES = re.findall(r"^- \[[ x]\] .*$", PAGE, re.MULTILINE)
DEFINED = {
    name
    for file in (ROOT / "tests" / "helm").glob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)\(", file.read_text("utf-8"), re.MULTILINE)
}


def named_in(line: str) -> set[str]:
    return set(re.findall(r"`(test_\w+)`", line))


def test_there_are_ticks_and_open_lines():
    assert sum(line.startswith("- [x]") for line in LINES) > 25
    assert sum(line.startswith("- [ ]") for line in LINES) >= 2


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("- [x]")])
def test_every_tick_names_tests_that_exist(line):
    assert named_in(line)
    assert named_in(line) <= DEFINED


@pytest.mark.parametrize("line", [line for line in LINES if line.startswith("- [ ]")])
def test_an_open_line_names_none(line):
    assert not named_in(line)
