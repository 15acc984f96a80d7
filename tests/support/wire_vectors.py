"""Reading the wire vectors: tagged values, payload generators, frames as the files write them."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from pathlib import Path
from typing import Any

import numpy as np

from poolhouse_node.wire.slices import Control, Frame, Kind

_FOLDER = Path(__file__).parent.parent / "vectors"
_KINDS = {kind.message_type: kind for kind in Kind}
UNKNOWN_KIND = 99


def load(name: str) -> dict[str, Any]:
    return json.loads((_FOLDER / name).read_text(encoding="utf-8"))


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def payload(spec: dict[str, Any]) -> bytes:
    """The bytes that a payload generator stands for."""
    if "hex" in spec:
        return bytes.fromhex(spec["hex"])
    index = np.arange(spec["words"], dtype=np.uint64)
    words = {
        "mul": lambda: ((index * 2654435761) % (1 << 32)) >> 16,
        "seq": lambda: index & 0xFFFF,
        "fill": lambda: np.full(spec["words"], spec.get("value", 0)),
    }[spec["gen"]]()
    return words.astype("<u2").tobytes()


def slice_bytes(spec: dict[str, Any]) -> bytes | str:
    """A slice as written in ``malformed`` and ``oddities``."""
    if "text" in spec:
        return spec["text"]
    if "hex" in spec:
        return bytes.fromhex(spec["hex"])
    return bytes.fromhex(spec["header"]) + bytes([spec["fill"]]) * (spec["length"] - 32)


def frame(message: dict[str, Any], data: bytes) -> Frame:
    """The frame that a sender's message stands for, unchecked."""
    kind: Any = _KINDS.get(message["t"], UNKNOWN_KIND)
    drops = message.get("dp", [])
    drops = drops if isinstance(drops, list) else [drops]
    drop_all = 0xFFFF in drops  # then it stands alone in the header
    control = Control(
        rollback=message.get("rb"),
        save=message.get("sv"),
        drop=() if drop_all else tuple(drops),
        drop_all=drop_all,
        reset=bool(message.get("reset")),
        load=message.get("ld"),
    )
    position = message["pos"] if "pos" in message else message["basePos"]
    spec = bool(message.get("spec"))
    return Frame(kind, position, message.get("n", 1), data, spec, control or Control.NONE)


def described(frame: Frame) -> dict[str, Any]:
    """A frame in the words of the vectors' ``decoded``."""
    control = frame.control
    fields = {
        "t": frame.kind.message_type,
        "enc": "f16",
        "n": frame.columns,
        "spec": int(frame.spec),
        "reset": 1 if control.reset else None,
        "rb": control.rollback,
        "sv": control.save,
        "ld": control.load,
        "dp": [0xFFFF] if control.drop_all else list(control.drop) or None,
        "basePos" if frame.kind.batched else "pos": frame.position,
        "payload_bytes": len(frame.payload),
        "payload_sha256": sha256(frame.payload),
    }
    return {name: value for name, value in fields.items() if value is not None}


def double(bits: str) -> float:
    return struct.unpack(">d", bytes.fromhex(bits))[0]


def value(tagged: Any) -> Any:
    """A value of ``binarypack.json`` as a caller would hold it."""
    if isinstance(tagged, list):
        return [value(item) for item in tagged]
    if not isinstance(tagged, dict):
        return tagged
    if "$" not in tagged:
        return {key: value(item) for key, item in tagged.items()}
    return {
        "undefined": lambda: None,
        "bytes": lambda: bytes.fromhex(tagged["hex"]),
        "f64": lambda: double(tagged["bits"]),
        "u16": lambda: np.array(tagged["v"], dtype=np.uint16),
        "f32": lambda: np.array(tagged["v"], dtype=np.float32),
        "u8view": lambda: memoryview(bytes.fromhex(tagged["hex"]))[tagged["from"] : tagged["to"]],
        "repeat": lambda: tagged["s"] * tagged["n"],
        "fillbytes": lambda: bytes([tagged["v"]]) * tagged["n"],
        "zeros": lambda: [0] * tagged["n"],
        "keys": lambda: {f"k{n}": n for n in range(tagged["n"])},
    }[tagged["$"]]()


def same(one: Any, other: Any) -> bool:
    """Equality for which a whole float and its integer are one number, and NaN is itself."""
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if _is_number(one) and _is_number(other):
        return one == other
    return type(one) is type(other) and one == other


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
