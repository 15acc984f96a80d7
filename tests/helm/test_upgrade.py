"""Fields that Kubernetes does not let an upgrade change are as they were when they were released.

`immutable.json` holds them. A change means that people must delete their sets by hand: make it on
purpose, say so in the changelog, and write the file anew.
"""

import json
from pathlib import Path

import pytest

from tests.support.chart import SCENARIOS, of_kind, render, scenario

KEPT = Path(__file__).parent / "immutable.json"


def immutable(name: str) -> dict:
    """By kind and name: selectors, claims, and the Service of a set."""
    found = {}
    for each in of_kind(render(scenario(name)), "Deployment", "StatefulSet"):
        spec = each["spec"]
        fields = ("selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")
        key = f"{each['kind']} {each['metadata']['name']}"
        found[key] = {field: spec[field] for field in fields if field in spec}
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_an_upgrade_changes_nothing_that_cannot_be_changed(name):
    assert immutable(name) == json.loads(KEPT.read_text())[name]


@pytest.mark.parametrize("name", SCENARIOS)
def test_no_version_is_in_what_cannot_be_changed(name):
    assert "0.1.0" not in json.dumps(immutable(name))
