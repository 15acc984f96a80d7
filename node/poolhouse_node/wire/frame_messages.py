"""Frames as messages, for a link whose wire channels are all closed (wire, section 5).

They travel on the main data channel, have no frame ids, and are handled in the order they come.
"""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any

import numpy as np

from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.halves import to_halves
from poolhouse_node.wire.slices import Control, Frame, Kind, control_of

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FRAME_TYPES", "frame_from_message", "frame_to_message"]

_KINDS = {kind.message_type: kind for kind in Kind}
FRAME_TYPES = frozenset(_KINDS)
"""Values of ``t`` that :func:`frame_from_message` takes."""

_COLUMNS_WHEN_UNSAID = 4
_MOST_DROPS = 16


def frame_to_message(frame: Frame) -> dict[str, Any]:
    """The message form of ``frame``, ready for ``pack``. Does not copy the payload."""
    kind, control = frame.kind, frame.control
    message: dict[str, Any] = {"t": kind.message_type}
    if kind.batched:
        message |= {"basePos": frame.position, "n": frame.columns}
    else:
        message["pos"] = frame.position
    if frame.spec:
        message["spec"] = 1
    if control:
        message |= _control_fields(control)
    return message | {"data": frame.payload, "enc": "f16"}


def _control_fields(control: Control) -> dict[str, Any]:
    fields = {
        "reset": 1 if control.reset else None,
        "rb": control.rollback,
        "sv": control.save,
        "ld": control.load,
        "dp": [0xFFFF] if control.drop_all else list(control.drop) or None,
    }
    return {name: value for name, value in fields.items() if value is not None}


def frame_from_message(message: Mapping[str, Any]) -> Frame:
    """The frame that a message carries, also in the forms of older peers.

    Without ``enc`` the payload is float32, as bytes or as base64 text, and is converted to half
    floats. A batched frame without ``n`` has four columns. Raises :class:`WireError` for anything
    that is not a frame.
    """
    kind = _KINDS.get(_text(message, "t"))
    if kind is None:
        raise WireError("not a compute frame")
    position = _number(message, "basePos" if kind.batched else "pos", 0, 0xFFFF_FFFF)
    if position is None:
        raise WireError("a frame without a position")
    unsaid = _COLUMNS_WHEN_UNSAID if kind.batched else 1
    columns = _number(message, "n", 0, 0xFFFF)
    return Frame(
        kind,
        position,
        unsaid if columns is None else columns,
        _payload(message),
        bool(message.get("spec")),
        _control(message),
    )


def _text(message: Mapping[str, Any], name: str) -> str:
    value = message.get(name)
    return value if isinstance(value, str) else ""


def _number(message: Mapping[str, Any], name: str, low: int, high: int) -> int | None:
    value = message.get(name)
    return None if value is None else _in_range(value, name, low, high)


def _in_range(value: object, name: str, low: int, high: int) -> int:
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise WireError(f"{name} of a frame is not a whole number in {low}..{high}")
    return value


def _control(message: Mapping[str, Any]) -> Control:
    control = control_of(
        rollback=_number(message, "rb", 0, 62),
        save=_number(message, "sv", 0, 0xFFFF) or None,
        drops=_drops(message.get("dp")),
        reset=bool(message.get("reset")),
        load=_number(message, "ld", 0, 0xFFFF) or None,
    )
    return control or Control.NONE


def _drops(value: object) -> tuple[int, ...]:
    if value is None:
        return ()
    listed = value if isinstance(value, list) else [value]
    if len(listed) > _MOST_DROPS:
        raise WireError("a frame that drops too many slots")
    slots = [_in_range(slot, "dp", 0, 0xFFFF) for slot in listed]
    return tuple(slot for slot in slots if slot)


def _payload(message: Mapping[str, Any]) -> bytes:
    data, encoding = message.get("data"), message.get("enc")
    if encoding == "f16" and isinstance(data, bytes):
        return data[: len(data) & ~1]
    if encoding is None and isinstance(data, bytes | str):
        return _halves_of_floats(data if isinstance(data, bytes) else _from_base64(data))
    raise WireError("a frame with a payload of no known form")


def _from_base64(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise WireError("a frame whose text is not base64") from error


def _halves_of_floats(data: bytes) -> bytes:
    values = np.frombuffer(data[: len(data) & ~3], dtype="<f4")
    return to_halves(values.astype(np.float32, copy=False)).astype("<u2", copy=False).tobytes()
