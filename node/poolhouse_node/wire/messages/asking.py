"""Questions, answers and what screens show of them (generation, sections 14 and 15)."""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

import msgspec
from msgspec import Meta

from poolhouse_node.wire.messages.base import (
    Flag,
    Id,
    Message,
    Millis,
    Number,
    Short,
    sent_dict,
    sent_list,
)

__all__ = [
    "Answered",
    "Ask",
    "Busy",
    "ContextUse",
    "GenerationDone",
    "GenerationStart",
    "History",
    "MapNode",
    "Queue",
    "Queued",
    "Reset",
    "RoomMap",
    "RoomStats",
    "Stop",
    "Style",
    "Telemetry",
    "Token",
    "Visibility",
]

Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]


class Ask(Message, frozen=True, kw_only=True, tag="ai-ask"):
    """A question. ``text`` is as long as its message; the host cuts it when it takes it.

    An ask of an API client has ``api`` and no text; its other fields are not read here.
    """

    text: str = ""
    api: Flag | None = None
    rid: Id | None = None


class Busy(Message, frozen=True, kw_only=True, tag="ai-busy"):
    """The host does not take the ask."""

    CUT: ClassVar = {"why": 1000}

    why: str = ""
    rid: Id | None = None
    code: Id | None = None
    n: Count | None = None
    max: Count | None = None


class Queued(Message, frozen=True, kw_only=True, tag="ai-queued"):
    """The ask waits; 1 is next."""

    pos: Count
    rid: Id | None = None


class Queue(Message, frozen=True, kw_only=True, tag="ai-queue"):
    """How many asks wait."""

    n: Count


class GenerationStart(Message, frozen=True, kw_only=True, tag="ai-genstart"):
    """An answer begins. A hidden stand-in has no text (generation, section 14)."""

    CUT: ClassVar = {"text": 8000}

    name: Short = ""
    text: str | None = None
    asker: Id | None = None
    cont: Flag | None = None
    mid: Count | None = None
    """Number of the answer, from 1."""
    api: Flag | None = None
    hidden: Flag = False


class Token(Message, frozen=True, kw_only=True, tag="ai-token"):
    """Text to show. ``d``: 0 sampled, 1 accepted draft, 2 accepted lookup."""

    CUT: ClassVar = {"text": 100_000}

    text: str
    d: Count | None = None


class ContextUse(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the context."""

    used: Count
    max: Count


class GenerationDone(Message, frozen=True, kw_only=True, tag="ai-gendone"):
    """An answer ended. ``capped``: it may be continued."""

    CUT: ClassVar = {"stats": 1000}

    stats: str | None = None
    ctx: ContextUse | None = None
    failed: Flag | None = None
    capped: Flag | None = None
    api: Flag | None = None
    asker: Id | None = None
    name: Short | None = None
    hidden: Flag = False


class Stop(Message, frozen=True, kw_only=True, tag="ai-stop"):
    """End the answer after the lap in flight."""

    rid: Id | None = None


class Answered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One exchange of the transcript."""

    name: Short = ""
    text: str = ""
    reply: str = ""
    stats: str | None = None
    mid: Count | None = None


class History(Message, frozen=True, kw_only=True, tag="ai-history"):
    """The last exchanges, for a newcomer. At most 64 are taken."""

    items: Annotated[list[Answered], Meta(max_length=64)] = msgspec.field(default_factory=sent_list)


class Reset(Message, frozen=True, kw_only=True, tag="ai-reset"):
    """Clear the screens."""

    by: Short = ""


class Visibility(Message, frozen=True, kw_only=True, tag="ai-visibility"):
    """Who sees questions and answers."""

    mode: Literal["all", "host", "asker"]


class Style(Message, frozen=True, kw_only=True, tag="ai-style"):
    """How the next answer is made."""

    persona: Short | None = None
    sampling: Short | None = None
    thinking: Flag | None = None
    length: Short | None = None


class Telemetry(Message, frozen=True, kw_only=True, tag="ai-tele"):
    """A worker's times: ``k`` maps ``spec``, ``one`` and ``pre`` to ms a frame."""

    k: Annotated[dict[Id, Millis], Meta(max_length=16)] = msgspec.field(default_factory=sent_dict)
    amax: Number | None = None
    """Largest magnitude sent since the last report."""


class MapNode(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A device on the map of the room."""

    name: Short = ""
    layers: Short = ""
    ms: Millis | None = None
    host: Flag | None = None
    amax: Number | None = None


class RoomStats(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Speed of the running answer: tokens per second, and ms."""

    tps: Number | None = None
    acc: Number | None = None
    lap: Millis | None = None
    gpu: Millis | None = None
    net: Millis | None = None


class RoomMap(Message, frozen=True, kw_only=True, tag="ai-map"):
    """What every device of the chain does, for screens."""

    nodes: Annotated[list[MapNode], Meta(max_length=256)] = msgspec.field(default_factory=sent_list)
    st: RoomStats | None = None
    live: Flag | None = None
