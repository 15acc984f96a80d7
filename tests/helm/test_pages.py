"""What the how-tos tell people to write is what the chart takes."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.chart import CHART, ROOT, render, render_notes
from tests.support.kubernetes import VERSIONS, problems

PAGES = [ROOT / "docs" / "how-to" / name for name in ("kubernetes.md", "gpu-pool.md")]
SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
SAID_BEFORE = {
    "turn": {"secret": {"name": "turn"}},
    "relay": {"enabled": True, "host": "relay.example.org", "externalIP": "203.0.113.7"},
    "nodes": {"pools": {"h200": {"pledgeGB": 130, "roomSecret": {"name": "room"}}}},
}
"""What a block leaves to the words around it."""


def blocks() -> list[Any]:
    fence = re.compile(r"^```yaml\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    return [
        pytest.param(yaml.safe_load(text), id=f"{page.stem}-{number}")
        for page in PAGES
        for number, text in enumerate(fence.findall(page.read_text(encoding="utf-8")))
    ]


def named(page: Path) -> list[str]:
    """Values in backticks, by their path."""
    texts = re.findall(
        r"`([a-zA-Z]+(?:\.[a-zA-Z]+)+)(?::[^`]*)?`", page.read_text(encoding="utf-8")
    )
    return [text for text in texts if text.partition(".")[0] in top_levels()]


def top_levels() -> set[str]:
    return set(DEFAULTS) | set(DEFAULTS["nodes"]["defaults"])


def laid_over(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in over.items():
        below = found.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        found[key] = laid_over(below, value) if both else value
    return found


def test_there_are_blocks_and_values():
    assert len(blocks()) >= 7
    assert all(len(named(page)) >= 5 for page in PAGES)


@pytest.mark.parametrize("block", blocks())
def test_a_block_of_values_renders(block):
    values = laid_over(SAID_BEFORE, block)
    found = [problem for each in render(values) for problem in problems(each, VERSIONS[-1])]
    assert not found, "\n".join(found)
    assert render_notes(values)


@pytest.mark.parametrize("path", sorted({path for page in PAGES for path in named(page)}))
def test_a_value_that_is_named_exists(path):
    names = path.split(".")
    of_a_pool = names[0] in DEFAULTS["nodes"]["defaults"]
    at = SCHEMA["$defs"]["device"] if of_a_pool else SCHEMA
    for name in names:
        at = followed(at)
        pools = list(at.get("patternProperties", {}).values())
        if not pools and "properties" not in at:
            break  # what is below is Kubernetes' own, and checked where it is rendered
        at = pools[0] if pools else at["properties"][name]


def followed(schema: dict[str, Any]) -> dict[str, Any]:
    """The definition that a schema names, or itself."""
    name = schema.get("$ref", "").rpartition("/")[2]
    return SCHEMA["$defs"][name] if name else schema
