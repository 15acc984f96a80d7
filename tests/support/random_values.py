"""Values of the chart as somebody might write them: right ones from the schema, and wrong ones."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any, Final

from hypothesis import strategies as st

from tests.support.chart import CHART

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["TO_KUBERNETES", "places", "valid_values", "with_changes", "wrong_values"]

type Schema = dict[str, Any]
type Path = tuple[str, ...]

_SCHEMA: Final[Schema] = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))
TO_KUBERNETES: Final = {
    "affinity", "behavior", "containerSecurityContext", "dnsConfig", "lifecycle", "livenessProbe",
    "podSecurityContext", "readinessProbe", "resources", "startupProbe", "valueFrom",
    "rollingUpdate", "global",
    "extraVolumes", "extraVolumeMounts", "initContainers", "sidecars", "tolerations", "hostAliases",
    "topologySpreadConstraints", "resourceClaims", "claims", "relabelings", "metricRelabelings",
    "httpFrom", "metricsFrom", "dnsTo", "redisTo", "controlEgress", "nodeEgress", "parentRefs",
    "tls", "nodeSelector", "podAnnotations", "podLabels", "annotations", "labels", "commonLabels",
}  # fmt: skip
"""Values that Kubernetes knows the form of, and the chart does not."""


def valid_values() -> st.SearchStrategy[dict[str, Any]]:
    """Any values that the schema takes; whether they fit together is another question."""
    return _of(_SCHEMA, "")


def _of(schema: Schema, key: str) -> st.SearchStrategy[Any]:
    if "$ref" in schema:
        return _of(_SCHEMA["$defs"][schema["$ref"].rpartition("/")[2]], key)
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    return st.one_of([_of_kind(kind, schema, key) for kind in kinds])


def _of_kind(kind: str, schema: Schema, key: str) -> st.SearchStrategy[Any]:
    match kind:
        case "boolean":
            return st.booleans()
        case "integer":
            least = schema.get("minimum", 0)
            return st.integers(least, min(schema.get("maximum", least + 50), least + 50))
        case "number":
            return st.one_of(st.integers(1, 64), st.sampled_from([0.5, 9.25, 1e6]))
        case "string":
            return _text(schema)
        case "null":
            return st.none()
        case "array":
            return _list(schema, key)
        case _:
            return _map(schema, key)


def _text(schema: Schema) -> st.SearchStrategy[str]:
    if "pattern" not in schema:
        return st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), max_size=12)
    found = st.from_regex(schema["pattern"].replace("$", r"\Z"), fullmatch=True)
    longest = min(schema.get("maxLength", 80), 80)  # a digest has 71
    return found.filter(lambda text: len(text) <= longest and text.isprintable())


def _list(schema: Schema, key: str) -> st.SearchStrategy[list[Any]]:
    items = schema["items"]
    if items == {"type": "object"}:
        return st.just([])  # only Kubernetes knows what is in them
    return st.lists(_of(items, key), max_size=2, unique_by=json.dumps)


def _map(schema: Schema, key: str) -> st.SearchStrategy[dict[str, Any]]:
    if key in TO_KUBERNETES and "properties" not in schema:
        return st.just({})
    if "patternProperties" in schema:  # pools
        ((pattern, form),) = schema["patternProperties"].items()
        names = st.from_regex(pattern.replace("$", r"\Z"), fullmatch=True)
        return st.dictionaries(names, _of(form, key), max_size=2)
    if "properties" in schema:
        own = {name: _of(form, name) for name, form in schema["properties"].items()}
        return st.fixed_dictionaries({}, optional=own)
    labels = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
    return st.dictionaries(labels, labels, max_size=2)


# ---- wrong values -------------------------------------------------------------------------------


def wrong_values() -> st.SearchStrategy[Any]:
    """Something of a kind that nobody expects at most places."""
    return st.sampled_from(
        [None, True, 0, -1, 2.5, 1e30, "", "text", "{{ .x }}", "a: b", [], ["x"], [{}], [[]], {},
         {"a": 1}, {"name": None}, "x" * 300]
    )  # fmt: skip


def places(values: dict[str, Any], above: Path = ()) -> Iterator[Path]:
    """The path of every value, of maps too."""
    for name, value in values.items():
        yield (*above, name)
        if isinstance(value, dict):
            yield from places(value, (*above, name))


def with_changes(values: dict[str, Any], changes: list[tuple[Path, Any]]) -> dict[str, Any]:
    """A copy with other values at these places, as far as they are still there."""
    changed = copy.deepcopy(values)
    for path, value in changes:
        at: Any = changed
        for name in path[:-1]:
            at = at.get(name) if isinstance(at, dict) else None
        if isinstance(at, dict):
            at[path[-1]] = value
    return changed
