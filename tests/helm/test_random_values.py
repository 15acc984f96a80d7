"""Whatever values say: objects that Kubernetes takes, or a sentence about the values."""

from __future__ import annotations

import re

import pytest
import yaml
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.support.chart import CHART, SCENARIOS, Refused, render, render_notes, scenario
from tests.support.kubernetes import VERSIONS, problems
from tests.support.random_values import (
    TO_KUBERNETES,
    places,
    valid_values,
    with_changes,
    wrong_values,
)

pytestmark = pytest.mark.slow

DEFAULTS = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
PLACES = list(places(DEFAULTS))
BY_SCHEMA = "values don't meet the specifications"
BY_CHECKS = re.compile(
    r"These values do not fit together:\n(- .*\.\n?)+|is set by the chart, or twice"
)
QUICK = settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow,
                                                           HealthCheck.filter_too_much]
)  # fmt: skip
A_BUSY_MACHINE = pytest.mark.timeout(90)
"""Ten seconds on an idle one."""
THOROUGH = settings(QUICK, max_examples=400)


def check(values: dict, *, strict: bool = True) -> None:
    """Render, or be refused by the schema or the checks: never by a template that fell over."""
    try:
        objects = render(values)
        notes = render_notes(values)
    except Refused as refused:
        said = str(refused)
        assert BY_SCHEMA in said or BY_CHECKS.search(said), said
        event("refused")
        return
    assert "<no value>" not in notes
    for version in (VERSIONS[0], VERSIONS[-1]) if strict else ():
        assert not [problem for each in objects for problem in problems(each, version)]
    event("rendered")


@st.composite
def wrongly_changed(draw: st.DrawFn) -> tuple[dict, bool]:
    """A scenario with some values changed, and whether the chart knows the form of all of them."""
    values = scenario(draw(st.sampled_from(SCENARIOS)))
    values.pop("extraObjects", None)  # templates of the person: their faults are theirs
    there = [*PLACES, *places(values)]
    changes = st.tuples(st.sampled_from(there), wrong_values())
    chosen = draw(st.lists(changes, min_size=1, max_size=3))
    chosen = [(path, value) for path, value in chosen if path[0] != "extraObjects"]
    is_known = not any(TO_KUBERNETES & set(path) for path, _ in chosen)
    return with_changes(with_groups(values, chosen), chosen), is_known


def with_groups(values: dict, changes: list) -> dict:
    """The scenario with the maps above every changed place."""
    made = with_changes(values, [])
    for path, _ in changes:
        at = made
        for name in path[:-1]:
            at = at.setdefault(name, {}) if isinstance(at, dict) else {}
    return made


@A_BUSY_MACHINE
@given(valid_values())
@QUICK
def test_values_of_the_schema_render_or_do_not_fit_together(values):
    check(values)


@A_BUSY_MACHINE
@given(wrongly_changed())
@QUICK
def test_wrong_values_are_refused_with_a_sentence(changed):
    values, is_known = changed
    check(values, strict=is_known)


@pytest.mark.long
@given(valid_values())
@THOROUGH
def test_many_values_of_the_schema_render_or_do_not_fit_together(values):
    check(values)


@pytest.mark.long
@given(wrongly_changed())
@THOROUGH
def test_many_wrong_values_are_refused_with_a_sentence(changed):
    values, is_known = changed
    check(values, strict=is_known)
