"""Small forms of JSON Schema that the values are made of."""

from __future__ import annotations

import copy
from typing import Any

__all__ = [
    "DNS_NAME",
    "Schema",
    "array",
    "choice",
    "mapping",
    "named_settings",
    "number",
    "objects",
    "partial",
    "pattern",
    "record",
    "ref",
    "whole",
]

type Schema = dict[str, Any]

DNS_NAME = r"^([a-z0-9]([-.a-z0-9]*[a-z0-9])?)?$"
"""Empty, or a name that Kubernetes takes for objects."""


def ref(name: str) -> Schema:
    """A definition of the schema."""
    return {"$ref": f"#/$defs/{name}"}


def pattern(expression: str, **more: Any) -> Schema:
    """A text of this form."""
    return {"type": "string", "pattern": expression, **more}


def whole(least: int, most: int | None = None) -> Schema:
    """A whole number: half a card is none."""
    return {"type": "integer", "minimum": least} | ({} if most is None else {"maximum": most})


def number(least: float, most: float) -> Schema:
    """A number within bounds."""
    return {"type": "number", "minimum": least, "maximum": most}


def choice(*values: str) -> Schema:
    """One of these."""
    return {"enum": list(values)}


def array(items: Schema) -> Schema:
    """A list that may be null."""
    return {"type": ["array", "null"], "items": items}


def objects() -> Schema:
    """A list for Kubernetes, which knows what is in it."""
    return array({"type": "object"})


def mapping(values: Schema | None = None) -> Schema:
    """A map that may be null; without ``values`` Kubernetes knows what is in it."""
    return {"type": ["object", "null"]} | (
        {} if values is None else {"additionalProperties": values}
    )


def named_settings(names: list[str]) -> Schema:
    """Settings by these names. An error then tells where the wrong name stands."""
    value: Schema = {"type": ["string", "number", "boolean"]}
    return mapping() | {"properties": dict.fromkeys(names, value), "additionalProperties": False}


def record(properties: dict[str, Schema], optional: tuple[str, ...] = ()) -> Schema:
    """Known keys and no others, required but for the optional ones: null takes a key away."""
    required = sorted(properties.keys() - set(optional))
    found: Schema = {"type": "object", "additionalProperties": False, "properties": properties}
    return found | ({"required": required} if required else {})


def partial(schema: Schema) -> Schema:
    """The same form without a required key, at any depth: what is said beside defaults."""
    copied = copy.deepcopy(schema)
    _free(copied)
    return copied


def _free(schema: Any) -> None:
    if isinstance(schema, dict):
        if schema.get("type") == "object":
            schema.pop("required", None)
        for value in schema.values():
            _free(value)
