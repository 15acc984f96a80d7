"""Compute frames and the slices that carry them (wire, section 5).

A frame is ``n`` hidden states as half floats with the control that rides on them. On a wire
channel it travels as slices of at most 4600 bytes, each with the same 32-byte header but for the
slice's index. Numbers of the header are big-endian, the payload is little-endian.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import ClassVar, NamedTuple

from poolhouse_node.wire.errors import WireError

__all__ = [
    "HEADER_BYTES",
    "MAGIC",
    "MAX_FRAME_ID",
    "SLICE_PAYLOAD_BYTES",
    "Control",
    "Frame",
    "Kind",
    "SliceHeader",
    "control_of",
    "decode_header",
    "encode_slices",
    "frame_of",
    "slices_needed",
]

SLICE_PAYLOAD_BYTES = 4568
HEADER_BYTES = 32
MAX_FRAME_ID = 0xFFFF_FFFF
"""Ids do not wrap: a link that got here must be replaced."""

MAGIC = b"SW"
# magic, kind, flags, id, position, n, index, count, two unused bytes, total, sv, ld, dp, dp
_HEADER = struct.Struct(">2sBBIIHHH2xIHHHH")
_MAX_SLICES = 0xFFFF
_MAX_ROLLBACK = 62
_DROP_ALL = 0xFFFF
_LAST_SLOT = 65534


class Kind(IntEnum):
    """What a frame is: its number in the header and its name as a message."""

    HIDDEN = 0
    HIDDEN_B = 1
    HIDDENRET = 2
    HIDDENRET_B = 3

    @property
    def message_type(self) -> str:
        """The ``t`` of the message form, such as ``ai-hidden-b``."""
        return _MESSAGE_TYPES[self]

    @property
    def batched(self) -> bool:
        """True for frames whose position is ``basePos`` and whose ``n`` is said."""
        return bool(self & 1)

    @property
    def returning(self) -> bool:
        """True for frames from the end of the chain to the host."""
        return bool(self & 2)


_MESSAGE_TYPES = ("ai-hidden", "ai-hidden-b", "ai-hiddenret", "ai-hiddenret-b")
_KINDS = tuple(Kind)


@dataclass(frozen=True, slots=True)
class Control:
    """What a device does to its state before it runs the frame, in the order of the fields.

    ``reset`` comes before ``load``; whatever is absent is skipped (wire, section 5, "Order in
    which a device applies control"). False when there is nothing to do.
    """

    NONE: ClassVar[Control]

    rollback: int | None = None
    """Column of the last ``spec`` frame to go back to, 0..62."""
    save: int | None = None
    """Slot to save the state in, 1..65534 (65535 is taken from a peer, never sent)."""
    drop: tuple[int, ...] = ()
    """At most two slots; empty when ``drop_all``."""
    drop_all: bool = False
    reset: bool = False
    load: int | None = None

    @property
    def is_empty(self) -> bool:
        """Nothing to do."""
        return self == Control.NONE

    def __bool__(self) -> bool:
        return not self.is_empty


Control.NONE = Control()


@dataclass(frozen=True, slots=True)
class Frame:
    """Hidden states between two devices.

    ``payload`` holds half floats, little-endian, ``columns`` states one after the other; its
    length is 2 x columns x width, which only the engine can check. ``position`` is the place in
    the context of the first column. ``columns`` is 0 when a peer sent that: a worker answers
    ``ai-error`` (decision 8). Fields are checked when the frame is encoded, not before.
    """

    kind: Kind
    position: int
    columns: int
    payload: bytes
    spec: bool = False
    control: Control = Control.NONE


class SliceHeader(NamedTuple):
    """The header of one slice, as its numbers stand."""

    magic: bytes
    kind: int
    flags: int
    frame_id: int
    position: int
    columns: int
    slice_index: int
    slice_count: int
    total_bytes: int
    """Payload of the whole frame."""
    save: int
    load: int
    drop_first: int
    drop_second: int


def slices_needed(payload_bytes: int) -> int:
    """How many slices carry a payload of this length; an empty one takes one."""
    return max(1, -(-payload_bytes // SLICE_PAYLOAD_BYTES))


def encode_slices(frame: Frame, frame_id: int) -> list[bytes]:
    """The slices of ``frame`` in index order.

    Raises :class:`WireError` when a field does not fit the header. Take the frame id for good
    only after this returned: an id that never travels is a gap the receiver waits for.
    """
    first_drop, second_drop = _check(frame, frame_id)
    count = slices_needed(len(frame.payload))
    control, payload = frame.control, memoryview(frame.payload)
    flags = _flags(frame)
    return [
        _HEADER.pack(
            MAGIC,
            frame.kind,
            flags,
            frame_id,
            frame.position,
            frame.columns or 1,
            index,
            count,
            len(payload),
            control.save or 0,
            control.load or 0,
            first_drop,
            second_drop,
        )
        + payload[index * SLICE_PAYLOAD_BYTES : (index + 1) * SLICE_PAYLOAD_BYTES]
        for index in range(count)
    ]


def _check(frame: Frame, frame_id: int) -> tuple[int, int]:
    """Refuse a frame that the header cannot say; the two drop fields of one that it can."""
    if not 1 <= frame_id <= MAX_FRAME_ID:
        raise WireError("the link is out of frame ids")
    if frame.kind not in _KINDS:
        raise WireError(f"no frame kind {frame.kind}")
    if not 0 <= frame.position <= 0xFFFF_FFFF:
        raise WireError(f"position {frame.position} is outside 32 bits")
    if not 0 <= frame.columns <= 0xFFFF:
        raise WireError(f"{frame.columns} columns are outside 16 bits")
    if len(frame.payload) > _MAX_SLICES * SLICE_PAYLOAD_BYTES:
        raise WireError(f"a payload of {len(frame.payload)} bytes needs too many slices")
    return (0, 0) if frame.control is Control.NONE else _check_control(frame.control)


def _check_control(control: Control) -> tuple[int, int]:
    if control.rollback is not None and not 0 <= control.rollback <= _MAX_ROLLBACK:
        raise WireError(f"rollback to column {control.rollback} is outside 0..{_MAX_ROLLBACK}")
    for slot in (control.save, control.load, *control.drop):
        if slot is not None and not 1 <= slot <= _LAST_SLOT:
            raise WireError(f"slot {slot} is outside 1..{_LAST_SLOT}")
    if control.drop_all:
        return _DROP_ALL, 0
    if len(control.drop) > 2:
        raise WireError("a frame can drop two slots at most")
    first, second, *_ = (*control.drop, 0, 0)
    return first, second


def _flags(frame: Frame) -> int:
    control = frame.control
    rollback = 0 if control.rollback is None else control.rollback + 1
    return int(frame.spec) | int(control.reset) << 1 | rollback << 2


def decode_header(data: bytes | bytearray | memoryview | str) -> SliceHeader | None:
    """The header of a slice, or ``None`` for anything that is not one.

    Text, fewer than 32 bytes and a wrong magic are not ours. Nothing else is checked.
    """
    if isinstance(data, str) or len(data) < HEADER_BYTES:
        return None
    header = SliceHeader._make(_HEADER.unpack_from(data))
    return header if header.magic == MAGIC else None


def frame_of(header: SliceHeader, payload: bytes) -> Frame | None:
    """The frame that a header and its whole payload make; ``None`` when its kind is unknown.

    An odd last byte of the payload is cut.
    """
    if header.kind >= len(_KINDS):
        return None
    if len(payload) & 1:
        payload = payload[:-1]
    return Frame(
        _KINDS[header.kind],
        header.position,
        header.columns,
        payload,
        bool(header.flags & 1),
        _control(header),
    )


def _control(header: SliceHeader) -> Control:
    flags, save, load, drops = header.flags >> 1, header.save, header.load, header.drop_first
    if not (flags or save or load or drops):
        return Control.NONE
    return control_of(
        rollback=(flags >> 1) - 1 if flags >> 1 else None,
        save=save or None,
        # A second drop without a first is not a drop.
        drops=tuple(slot for slot in header[-2:] if slot) if drops else (),
        reset=bool(flags & 1),
        load=load or None,
    )


def control_of(
    *,
    rollback: int | None,
    save: int | None,
    drops: tuple[int, ...],
    reset: bool,
    load: int | None,
) -> Control:
    """Control as a peer said it: slot 65535 among ``drops`` means all of them (decision 7)."""
    drop_all = _DROP_ALL in drops
    return Control(rollback, save, () if drop_all else drops, drop_all, reset, load)
