"""Typed messages of the data channel: maps to structs and back.

``joining`` holds who is in and alive, ``loading`` dealing, weights and recovery, ``asking``
questions and answers. Compute frames are not messages here (``frame_messages``), nor are the
pieces of long messages (``chunks``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.messages import asking, joining, loading
from poolhouse_node.wire.messages.base import Message

__all__ = ["MESSAGE_TYPES", "Message", "parse", "to_map"]


def _types_of(module: object) -> dict[str, type[Message]]:
    found = (value for value in vars(module).values() if isinstance(value, type))
    structs = (value for value in found if issubclass(value, Message) and value is not Message)
    return {str(struct.__struct_config__.tag): struct for struct in structs}


MESSAGE_TYPES: Mapping[str, type[Message]] = {
    **_types_of(joining),
    **_types_of(loading),
    **_types_of(asking),
}
"""The struct of every ``t`` that we act on."""


def parse(message: Mapping[str, Any]) -> Message | None:
    """The struct of a received message; ``None`` for a ``t`` that we do not act on.

    Unknown fields are ignored, null counts as absent, and a whole number may come as a float.
    Raises :class:`WireError` when a field is missing or is not what it should be.
    """
    name = message.get("t")
    struct = MESSAGE_TYPES.get(name) if isinstance(name, str) else None
    if struct is None:
        return None
    if struct is joining.Hello:  # its own way with odd fields
        return _convert(joining.relaxed_hello(_as_integers(message)), struct)
    try:
        return msgspec.convert(message, struct, builtin_types=(bytes,))
    except msgspec.ValidationError:
        # The slow way, for what is right in JavaScript's eyes only.
        return _convert(_as_integers(message), struct)


def _convert(fields: Mapping[str, Any], struct: type[Message]) -> Message:
    try:
        return msgspec.convert(fields, struct, builtin_types=(bytes,))
    except msgspec.ValidationError as error:
        raise WireError(f"{fields.get('t')}: {error}") from error


def _as_integers(value: Any) -> Any:
    """``value`` with whole floats as integers, and without the null entries of maps."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_as_integers(item) for item in value]
    if isinstance(value, Mapping):
        return {key: _as_integers(item) for key, item in value.items() if item is not None}
    return value


def to_map(message: Message) -> dict[str, Any]:
    """The map that ``pack`` takes: ``t`` first, then the fields in the order of the pages.

    Fields that are ``None`` or at their default are left out.
    """
    fields: dict[str, Any] = msgspec.to_builtins(message, builtin_types=(bytes,))
    for name, value in fields.items():
        if isinstance(value, bool):
            fields[name] = int(value)  # flags of the protocol are 1 and 0
    return fields
