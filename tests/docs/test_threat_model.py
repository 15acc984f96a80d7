"""The threat model names tests: they exist, and its rows have the form that it promises."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "explanation" / "threat-model.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`(test_\w+)`", PAGE)))
DEFINED = {
    name
    for file in ROOT.glob("tests/**/test_*.py")
    for name in re.findall(r"def (test_\w+)\(", file.read_text(encoding="utf-8"))
}


def test_it_names_tests():
    assert len(NAMED) > 40


@pytest.mark.parametrize("name", NAMED)
def test_a_test_that_shows_something_exists(name):
    assert name in DEFINED


@pytest.mark.parametrize("row", [line for line in PAGE.splitlines() if line.startswith("|")])
def test_a_row_has_two_filled_cells(row):
    assert len([cell for cell in row.strip("|").split(" | ") if cell.strip()]) == 2
