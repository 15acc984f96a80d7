"""What is wrong with dashboards and rules, as sentences; none when all is well.

What is named must exist in the registries of the programs: series, labels, and the values of
labels whose values are a closed set, bounds of histograms among them.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tools.monitoring.families import by_sample, control_families, node_families
from tools.monitoring.promql import selectors, without_variables

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from tools.monitoring.families import Family
    from tools.monitoring.promql import Selector

__all__ = ["Known", "board_expressions", "check_board", "check_rules", "rule_expressions"]

_PROMETHEUS_OWN = {"up", "ALERTS"}
_TARGET_LABELS = {"job", "instance", "namespace", "pod", "room"}
_SEVERITIES = {"page", "ticket", "none"}
_FIXED_RANGE = re.compile(r"\[\d+\w*\]")


@dataclass(frozen=True, slots=True)
class Known:
    """Every name that a query may use."""

    families: Mapping[str, list[Family]]
    recorded: frozenset[str]

    @classmethod
    def of(cls, rule_files: Iterable[Mapping[str, Any]]) -> Known:
        """The programs' series, and what these rules record."""
        rules = [rule for file in rule_files for rule in _rules(file)]
        recorded = frozenset(rule["record"] for rule in rules if "record" in rule)
        return cls(by_sample([*control_families(), *node_families()]), recorded)

    def complaints(self, expression: str) -> Iterator[str]:
        """What in an expression does not exist."""
        for selector in selectors(expression):
            if selector.name in self.families:
                yield from _labels(selector, self.families[selector.name])
            elif selector.name not in self.recorded | _PROMETHEUS_OWN:
                yield f"there is no series {selector.name}"


def _labels(selector: Selector, families: list[Family]) -> Iterator[str]:
    for label, operator, value in selector.matchers:
        if label in _TARGET_LABELS:
            continue
        having = [family for family in families if label in family.labels]
        if not having:
            yield f"{selector.name} has no label {label}"
            continue
        wanted = value.split("|") if operator in {"=~", "!~"} else [value]
        known = set[str]().union(*(family.labels[label] for family in having))
        if all(family.is_closed for family in having) and not set(wanted) <= known:
            yield f"{selector.name} has no {label}={value}, only {', '.join(sorted(known))}"


# ---- dashboards ---------------------------------------------------------------------------------


def board_expressions(board: Mapping[str, Any], rate_interval: str = "5m") -> list[tuple[str, str]]:
    """Title of the panel and expression of every query, variables put in."""
    return [
        (panel["title"], without_variables(target["expr"], rate_interval))
        for panel in board["panels"]
        for target in panel.get("targets", ())
    ]


def check_board(name: str, board: Mapping[str, Any], known: Known) -> list[str]:
    """A provisioned dashboard. ``name`` is its file's, without the ending."""
    said = [*_head(name, board), *_places(board["panels"])]
    for panel in board["panels"]:
        if panel["type"] != "row":
            said += [f"{panel['title']!r}: {each}" for each in _panel(panel, known)]
    return said


def _head(name: str, board: Mapping[str, Any]) -> Iterator[str]:
    if board["uid"] != name or len(name) > 40:
        yield f"the uid is the file's name, at most 40 characters: {board['uid']}"
    if board.get("id") is not None or "version" in board or "__inputs" in board:
        yield "a provisioned board has no id, no version and no inputs"
    names = [variable["name"] for variable in board["templating"]["list"]]
    if names != ["datasource", "namespace", "job", "instance"]:
        yield f"the variables are {names}"
    numbers = Counter(panel["id"] for panel in board["panels"])
    yield from (f"the panel id {each} is used twice" for each, n in numbers.items() if n > 1)


def _places(panels: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """No two panels on one cell, none outside, no hole between."""
    cells = Counter[tuple[int, int]]()
    for panel in panels:
        at = panel["gridPos"]
        columns = range(at["x"], at["x"] + at["w"])
        cells.update((x, y) for x in columns for y in range(at["y"], at["y"] + at["h"]))
    if any(count > 1 for count in cells.values()):
        yield "panels overlap"
    height = 1 + max(y for _, y in cells)
    if set(cells) != {(x, y) for x in range(24) for y in range(height)}:
        yield "the grid has holes, or panels outside of it"


def _panel(panel: Mapping[str, Any], known: Known) -> Iterator[str]:
    if not panel.get("description"):
        yield "has no description"
    if not panel["fieldConfig"]["defaults"].get("unit"):
        yield "has no unit"
    if not panel.get("targets"):
        yield "asks nothing"
    for thing in (panel, *panel.get("targets", ())):
        if thing["datasource"] != {"type": "prometheus", "uid": "$datasource"}:
            yield "is tied to one data source"
    for target in panel.get("targets", ()):
        if _FIXED_RANGE.search(target["expr"]):
            yield f"has a fixed range: {target['expr']}"
        yield from known.complaints(without_variables(target["expr"]))


# ---- rules --------------------------------------------------------------------------------------


def rule_expressions(files: Iterable[Mapping[str, Any]]) -> list[tuple[str, str]]:
    """Name and expression of every rule."""
    rules = (rule for file in files for rule in _rules(file))
    return [(rule.get("record") or rule["alert"], rule["expr"]) for rule in rules]


def check_rules(files: Iterable[Mapping[str, Any]], known: Known) -> list[str]:
    """Recording rules and alerts."""
    rules = [rule for file in files for rule in _rules(file)]
    names = Counter(rule.get("record") or rule["alert"] for rule in rules)
    said = [f"{name} is there {count} times" for name, count in names.items() if count > 1]
    for rule in rules:
        name = rule.get("record") or rule["alert"]
        said += [f"{name}: {each}" for each in known.complaints(rule["expr"])]
        said += [f"{name}: {each}" for each in (_alert(rule) if "alert" in rule else _record(rule))]
    return said


def _rules(file: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for group in file["groups"]:
        yield from group["rules"]


def _record(rule: Mapping[str, Any]) -> Iterator[str]:
    if not re.fullmatch(r"(job|instance):poolhouse_\w+:\w+", rule["record"]):
        yield "is not called level:metric:operation"


def _alert(rule: Mapping[str, Any]) -> Iterator[str]:
    if not re.fullmatch(r"Poolhouse[A-Z]\w+", rule["alert"]):
        yield "is not called PoolhouseWhat"
    if set(rule["labels"]) != {"severity"} or rule["labels"]["severity"] not in _SEVERITIES:
        yield "has no severity, or another label"
    if set(rule["annotations"]) != {"summary", "description", "runbook_url"}:
        yield "needs a summary, a description and a runbook, and nothing else"
