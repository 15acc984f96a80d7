"""What Kubernetes would say of objects: its own schemas, unknown fields refused."""

from __future__ import annotations

import functools
import json
from importlib import resources
from typing import Any, Final

import jsonschema
from referencing import Registry, Resource

__all__ = ["VERSIONS", "problems"]

VERSIONS: Final = ("1.31", "1.34", "1.37")
"""The oldest that the chart takes, and later ones."""

type Schema = dict[str, Any]

_TEXT: Schema = {"type": "string", "minLength": 1}
_LABELS: Schema = {"type": "object", "additionalProperties": {"type": "string"}}
_ANY: Schema = {"type": "object"}


def _record(required: dict[str, Schema], **optional: Schema) -> Schema:
    properties = required | optional
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _list(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


def _object(spec: Schema) -> Schema:
    metadata = _record({"name": _TEXT, "namespace": _TEXT, "labels": _LABELS}, annotations=_LABELS)
    return _record({"apiVersion": _TEXT, "kind": _TEXT, "metadata": metadata, "spec": spec})


# Of other projects' kinds Kubernetes has no schema: what the chart uses of them.
_ENDPOINT = _record(
    {"port": _TEXT, "path": _TEXT, "interval": _TEXT},
    relabelings=_list(_ANY),
    metricRelabelings=_list(_ANY),
)
_RULE = _record(
    {"expr": _TEXT}, alert=_TEXT, record=_TEXT, labels=_LABELS, annotations=_LABELS,
    **{"for": _TEXT, "keep_firing_for": _TEXT},
)  # fmt: skip
_GROUP = _record({"name": _TEXT, "rules": _list(_RULE)}, interval=_TEXT)
_OTHERS: Final = {
    "monitoring.coreos.com/v1 PodMonitor": _object(
        _record(
            {
                "selector": _record({"matchLabels": _LABELS}),
                "podMetricsEndpoints": _list(_ENDPOINT),
            },
        )
    ),
    "monitoring.coreos.com/v1 PrometheusRule": _object(
        _record({"groups": {"type": ["array", "null"], "items": _GROUP}})
    ),
    "gateway.networking.k8s.io/v1 HTTPRoute": _object(
        _record(
            {"parentRefs": _list(_ANY), "rules": _list(
                _record(
                    {"backendRefs": _list(_record({"name": _TEXT, "port": {"type": "integer"}}))},
                    timeouts=_record({"request": _TEXT}),
                )
            )},
            hostnames=_list(_TEXT),
        )
    ),
    "keda.sh/v1alpha1 ScaledObject": _object(
        _record(
            {
                "scaleTargetRef": _record({"apiVersion": _TEXT, "kind": _TEXT, "name": _TEXT}),
                "minReplicaCount": {"type": "integer"},
                "maxReplicaCount": {"type": "integer"},
                "triggers": _list(_record({"type": _TEXT, "metadata": _LABELS})),
            }
        )
    ),
}  # fmt: skip


def problems(found: dict[str, Any], version: str) -> list[str]:
    """What is wrong with an object for this version of Kubernetes."""
    validator = _validator(found["apiVersion"], found["kind"], version)
    name = f"{found['kind']} {found['metadata']['name']}"
    return [
        f"{name}: {'.'.join(map(str, error.path))}: {error.message[:400]}"
        for error in validator.iter_errors(found)
    ]


@functools.cache
def _validator(api_version: str, kind: str, version: str) -> jsonschema.Draft202012Validator:
    other = _OTHERS.get(f"{api_version} {kind}")
    if other is not None:
        return jsonschema.Draft202012Validator(other)
    group, _, number = api_version.rpartition("/")
    file = "-".join(filter(None, (kind.lower(), group.partition(".")[0], number)))
    registry = Resource.from_contents(_file(version, "_definitions")) @ Registry()
    schema = _file(version, file)
    return jsonschema.Draft202012Validator(
        schema, registry=Resource.from_contents(schema) @ registry
    )


@functools.cache
def _file(version: str, name: str) -> Schema:
    folder = resources.files("kubernetes_validate") / "kubernetes-json-schema"
    text = (folder / f"v{version}.0-local-strict" / f"{name}.json").read_text(encoding="utf-8")
    return json.loads(text)
