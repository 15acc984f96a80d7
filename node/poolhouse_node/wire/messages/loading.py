"""From Start to the room being online, and back to it (dealing; liveness, sections 5 to 7)."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from poolhouse_node.wire.messages.base import (
    Bytes,
    Flag,
    Gigabytes,
    Id,
    Layer,
    Message,
    Millis,
    Position,
    Short,
    Slot,
    Url,
    Version,
    sent_dict,
    sent_list,
)

__all__ = [
    "Degraded",
    "ErrorReport",
    "HostProgress",
    "Inventory",
    "InventoryRequest",
    "Layers",
    "LeftOut",
    "LinkLost",
    "Linked",
    "Load",
    "ModelHost",
    "Next",
    "Offload",
    "Progress",
    "RangeAck",
    "RangePart",
    "RangeRequest",
    "Ready",
    "ReadyAll",
    "Redeal",
    "ShareLimit",
    "StartFailed",
    "StartRequest",
    "Wait",
]

_MOST_DEVICES = 1024
_MOST_RANGES = 20_000

Ranges = Annotated[list[Annotated[str, Meta(max_length=40)]], Meta(max_length=_MOST_RANGES)]
"""``lo-hi`` in bytes of the file, both inclusive; at most 20000."""
ByName = Annotated[dict[Short, Short], Meta(max_length=_MOST_DEVICES)]
Percent = Annotated[float, Meta(ge=0, le=100)]


class StartRequest(Message, frozen=True, kw_only=True, tag="ai-start-req"):
    """Someone pressed Start: ``boss`` (an id) shall host the model."""

    model: Id
    boss: Id
    by: Short = ""


class ModelHost(Message, frozen=True, kw_only=True, tag="ai-modelhost"):
    """The room's creator names the model host to a newcomer."""

    id: Id


class InventoryRequest(Message, frozen=True, kw_only=True, tag="ai-inv-req"):
    """Which ranges of this file are cached?"""

    url: Url


class Inventory(Message, frozen=True, kw_only=True, tag="ai-inv"):
    """The cached ranges of a file."""

    url: Url
    have: Ranges = msgspec.field(default_factory=sent_list)


class Offload(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, rename="camel"):
    """Routed experts of layers ``[lo, hi)`` are parked in system memory."""

    lo: Layer
    hi: Layer
    vram_bytes: Bytes
    ram_bytes: Bytes
    ram_spare: Bytes | None = None


class Load(Message, frozen=True, kw_only=True, tag="ai-load"):
    """Load layers ``[range[0], range[1])`` and send results to ``next`` (dealing, section 7).

    ``next`` is a peer id or ``host``. Fields that an older host leaves out have defaults of the
    worker's own.
    """

    v: Version | None = None
    model: Id
    range: tuple[Layer, Layer]
    ctx: Position | None = None
    """Positions to build the caches for."""
    kv: Id | None = None
    """``f16`` or ``q8``."""
    next: Id
    host: Id
    inv: Annotated[dict[Id, Ranges], Meta(max_length=_MOST_DEVICES)] | None = None
    """Cached ranges by peer id."""
    offload: Offload | None = None


class Wait(Message, frozen=True, kw_only=True, tag="ai-wait"):
    """In, but nothing to do yet."""


class Progress(Message, frozen=True, kw_only=True, tag="ai-progress"):
    """How much of a worker's layers is loaded."""

    pct: Percent


class HostProgress(Message, frozen=True, kw_only=True, tag="ai-hostprog"):
    """The progress of every device by name, for screens and pacing."""

    all: Annotated[dict[Short, Percent], Meta(max_length=_MOST_DEVICES)] = msgspec.field(
        default_factory=sent_dict
    )
    at: Millis | None = None


class Ready(Message, frozen=True, kw_only=True, tag="ai-ready"):
    """A worker's layers are loaded."""

    slots: Annotated[list[Slot], Meta(max_length=4096)] = msgspec.field(default_factory=sent_list)
    """Checkpoints that it read back from its own disk."""
    ckpt: Flag | None = None
    """It applies ``sv``, ``ld`` and ``dp``."""
    disk: Annotated[dict[str, Any], Meta(max_length=16)] | None = None


class Layers(Message, frozen=True, kw_only=True, tag="ai-layers"):
    """Who holds what: ``by`` is name to ``first–last`` with an en dash, both inclusive."""

    by: ByName
    held: Annotated[dict[Short, Gigabytes], Meta(max_length=_MOST_DEVICES)] | None = None
    out: ByName | None = None
    """Name to the reason why it holds nothing: ``unneeded``, ``small``, ``late``."""


class LeftOut(Message, frozen=True, kw_only=True, tag="ai-out"):
    """Replaces the ``out`` of the last :class:`Layers`."""

    out: ByName


class ReadyAll(
    Message, frozen=True, kw_only=True, tag="ai-ready-all", rename={"ctx_wanted": "ctxWant"}
):
    """The room is online. Sent again to newcomers; take it idempotently."""

    CUT: ClassVar = {"label": 80}

    model: Id
    label: str = ""
    ctx: Position | None = None
    ctx_wanted: Position | None = None
    """The context it would have had, when the pledges did not hold it."""
    out: ByName | None = None


class ErrorReport(Message, frozen=True, kw_only=True, tag="ai-error"):
    """A worker failed. With ``load`` it could not load its layers."""

    CUT: ClassVar = {"message": 1000}

    message: str = ""
    load: Flag = False


class StartFailed(Message, frozen=True, kw_only=True, tag="ai-start-failed"):
    """The start is off; the sentence is for people."""

    CUT: ClassVar = {"why": 1000}

    why: str = ""


class Redeal(Message, frozen=True, kw_only=True, tag="ai-redeal"):
    """The layers are dealt again; new loads follow."""

    by: Short = ""
    model: Id = ""


class Degraded(Message, frozen=True, kw_only=True, tag="ai-degraded"):
    """A chain device is gone; the room waits for it."""

    CUT: ClassVar = {"why": 1000}

    why: str = ""


class ShareLimit(Message, frozen=True, kw_only=True, tag="ai-share"):
    """The host deals a device less after it was killed while it loaded (liveness, section 9)."""

    CUT: ClassVar = {"why": 1000}

    gb: Gigabytes | None = None
    """The most it is dealt from now on."""
    drop: Flag = False
    """It is dealt nothing any more."""
    why: str = ""


class Next(Message, frozen=True, kw_only=True, tag="ai-next"):
    """Send results to another device; with ``relink`` over a fresh link."""

    next: Id
    relink: Flag = False


class Linked(Message, frozen=True, kw_only=True, tag="ai-linked"):
    """The fresh link that :class:`Next` asked for is there, or is not."""

    next: Id
    ok: Flag


class LinkLost(Message, frozen=True, kw_only=True, tag="ai-linklost"):
    """A worker's link to device ``name`` went down, or is replaced (``up``)."""

    name: Short
    up: Flag | None = None
    """Missing counts as lost."""


class RangeRequest(Message, frozen=True, kw_only=True, tag="ai-wget"):
    """Give me bytes ``lo..hi`` of a file, both inclusive (dealing, section 9)."""

    id: Id
    url: Url
    lo: Bytes
    hi: Bytes
    win: Bytes | None = None
    """Most unacknowledged bytes; missing or 0: no limit."""


class RangePart(Message, frozen=True, kw_only=True, tag="ai-wpart"):
    """A part of a range, or its end, or that it is not here."""

    id: Id
    off: Bytes | None = None
    """Offset in the range."""
    data: Annotated[bytes, Meta(max_length=1 << 20)] | None = None
    done: Flag = False
    miss: Flag = False


class RangeAck(Message, frozen=True, kw_only=True, tag="ai-wack"):
    """What the reader has taken so far, or that it gave up."""

    id: Id
    got: Bytes | None = None
    cancel: Flag = False
