"""What CONTRIBUTING.md promises about the code and a test can count."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
MODULES = sorted(
    path.relative_to(ROOT).as_posix()
    for top in ("control", "node")
    for path in (ROOT / top).glob("poolhouse_*/**/*.py")
)


def lines_at_most() -> int:
    """The bound that the page states."""
    found = re.search(r"Small files \(at most (\d+) lines\)", PAGE)
    assert found, "the page states a bound"
    return int(found[1])


def test_both_packages_are_counted():
    assert len(MODULES) > 300
    assert {path.split("/")[1] for path in MODULES} == {"poolhouse_control", "poolhouse_node"}


@pytest.mark.parametrize("path", MODULES)
def test_a_module_is_small(path):
    lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert lines <= lines_at_most(), "look for a seam: a part that has a name of its own"
