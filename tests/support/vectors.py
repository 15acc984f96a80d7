"""Test vectors as pytest parameters, with readable ids."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[1] / "vectors"


@cache
def vectors(name: str) -> Any:
    """The content of ``tests/vectors/<name>.json``."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def cases(rows: list[Any], label: str = "name") -> list[Any]:
    """One parameter per row, named by its ``label`` (or its number)."""
    return [
        pytest.param(row, id=str(row.get(label, number) if isinstance(row, dict) else number))
        for number, row in enumerate(rows)
    ]
