"""What a host keeps on disk, so that a room outlives its process (liveness, section 11).

A record is the person's choices and what the running host knows, as one JSON text. It is read back
by whoever starts the host again: each field is bounded, and a record of another version is none.
The gate has a file of its own: it outlives the 15 minutes that a record is good for.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = [
    "LIMITS_KEPT",
    "RECORD_VALID_S",
    "TRANSCRIPT_KEPT",
    "RecordedAsk",
    "RecordedDeath",
    "RecordedExchange",
    "RecordedLimit",
    "RecordedOptions",
    "RecordedReply",
    "RecordedSeat",
    "RoomMemory",
    "RoomRecord",
    "RunningAnswer",
    "is_fresh",
    "read",
    "write",
]

RECORD_VALID_S = 900.0
TRANSCRIPT_KEPT = 20
LIMITS_KEPT = 1000
VERSION = 1
RECORD_BYTES_MAX = 64 << 20

type Name = Annotated[str, Meta(max_length=200)]
type PeerId = Annotated[str, Meta(max_length=128)]
type Text = Annotated[str, Meta(max_length=1 << 22)]
"""Longer than the longest context holds."""
type Address = Annotated[str, Meta(max_length=4096)]
type TokenId = Annotated[int, Meta(ge=0, lt=1 << 31)]
type Ids = Annotated[list[TokenId], Meta(max_length=1 << 22)]
type Count = Annotated[int, Meta(ge=0, le=(1 << 53) - 1)]
type Layers = Annotated[int, Meta(ge=0, le=10_000)]


class RecordedExchange(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of the conversation: the question, and the ids that were sampled."""

    name: Name
    question: Text
    answer_ids: Ids


class RecordedReply(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the transcript that newcomers are shown."""

    name: Name
    text: Text
    reply: Text
    stats: Text
    mid: Count


class RecordedAsk(msgspec.Struct, frozen=True, kw_only=True):
    """A question. ``prompt_ids`` is set when a whole prompt was given as token ids."""

    asker: PeerId
    name: Name
    text: Text
    prompt_ids: Ids | None = None


class RunningAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer in progress, with the ids that everyone has seen already."""

    ask: RecordedAsk
    mid: Count
    shown_ids: Ids


class RecordedSeat(msgspec.Struct, frozen=True, kw_only=True):
    """A device that held layers ``lo`` to ``hi``, without ``hi``."""

    name: Name
    lo: Layers
    hi: Layers


class RecordedDeath(msgspec.Struct, frozen=True, kw_only=True):
    """What a device said when it had been killed while it loaded: when, or else how long ago."""

    at: float | None = None
    ago: float | None = None


class RecordedLimit(msgspec.Struct, frozen=True, kw_only=True):
    """A device that was killed by its layers, and the most it is dealt since then."""

    name: Name
    most_gb: Annotated[float, Meta(ge=0, le=1 << 20)]
    """0: nothing."""
    deaths: Annotated[list[RecordedDeath], Meta(max_length=2)]
    """The last ones, oldest first."""


class RecordedOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the person chose when the room was opened."""

    code: Annotated[str, Meta(pattern=r"\A(?:[A-Z2-9]{4}|[A-Z2-9]{6})\Z")]
    servers: Annotated[list[Address], Meta(max_length=64)]
    """Signaling servers, in the order to try them; none for a room of ``poolhouse up``."""
    host_name: Name
    model: Address
    """As it was given: a catalogue key, a file or a URL."""
    model_key: Address = ""
    """What the room calls it: token ids and a split mean nothing to another model."""
    context_size: Annotated[int, Meta(ge=1, le=1 << 31)] | None = None
    split: Annotated[list[Layers], Meta(max_length=1000)] | None = None
    pledge_gb: Annotated[float, Meta(gt=0, le=1 << 20)] | None = None
    max_tokens: Annotated[int, Meta(ge=1, le=1 << 31)]
    temperature: Annotated[float, Meta(ge=0, le=100)]
    top_k: Annotated[int, Meta(ge=1, le=1 << 20)]
    system: Text = ""
    is_open: bool = False
    denies_unknown: bool = False
    takes_older_devices: bool = False
    takes_api_clients: bool = True
    redeal_after_s: Annotated[float, Meta(gt=0, le=1 << 31)] | None = None
    wait: Annotated[int, Meta(ge=0, le=1000)] = 1
    """Devices to wait for before the first deal."""
    devices: Annotated[int, Meta(ge=1, le=1000)] | None = None
    """How many devices ``poolhouse up`` started, host included."""


class RoomMemory(msgspec.Struct, frozen=True, kw_only=True):
    """What the running host knows and a restarted one takes up."""

    answers: Count = 0
    """How many answers were begun: the next one's number is one more."""
    exchanges: Annotated[list[RecordedExchange], Meta(max_length=1 << 20)] = []
    """The conversation, every turn, oldest first."""
    transcript: Annotated[list[RecordedReply], Meta(max_length=1000)] = []
    """Oldest first; the last :data:`TRANSCRIPT_KEPT` are written."""
    seats: Annotated[list[RecordedSeat], Meta(max_length=1000)] = []
    """Host first, in layer order; empty when no model ran."""
    limits: Annotated[list[RecordedLimit], Meta(max_length=LIMITS_KEPT)] = []
    running: RunningAnswer | None = None
    waiting: Annotated[list[RecordedAsk], Meta(max_length=1000)] = []
    checkpoint_counter: Count = 0
    """Checkpoint numbers go on from here: workers may still hold older ones."""


class RoomRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The file. ``saved_at`` is in seconds since 1970."""

    version: int = VERSION
    saved_at: float
    options: RecordedOptions
    memory: RoomMemory


def is_fresh(record: RoomRecord, now: float) -> bool:
    """May a host take this record up at ``now``, seconds since 1970?

    One that lies as little in the future is fresh too: a machine's clock is set while it starts.
    """
    return abs(now - record.saved_at) <= RECORD_VALID_S


def write(record: RoomRecord) -> bytes:
    """The record as JSON, with the end of its transcript."""
    memory = record.memory
    if len(memory.transcript) > TRANSCRIPT_KEPT:
        kept = memory.transcript[-TRANSCRIPT_KEPT:]
        record = msgspec.structs.replace(
            record, memory=msgspec.structs.replace(memory, transcript=kept)
        )
    return msgspec.json.encode(record)


def read(data: bytes) -> RoomRecord | None:
    """What :func:`write` gave; ``None`` for anything else, and for records of other versions."""
    if len(data) > RECORD_BYTES_MAX:
        return None
    try:
        record = msgspec.json.decode(data, type=RoomRecord)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return record if record.version == VERSION else None
