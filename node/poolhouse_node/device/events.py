"""What a device tells the person (or program) at its terminal. Facts, no sentences but failures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.answer_record import Outcome
    from poolhouse_node.room.laps import LapKind

__all__ = [
    "AnswerEnded",
    "AnswerMeasured",
    "AnswerResumed",
    "AnswerStarted",
    "AnswerWaits",
    "Dealt",
    "DeviceJoined",
    "DeviceLeft",
    "DeviceStalled",
    "DeviceWaits",
    "DeviceWithdrew",
    "Event",
    "HostFound",
    "HostLost",
    "LapReturned",
    "LapTimedOut",
    "LoadProgress",
    "LobbyEntered",
    "NextLinked",
    "Notice",
    "Notify",
    "PingAnswered",
    "PromptProgress",
    "Queued",
    "RoomDegraded",
    "RoomMended",
    "RoomOnline",
    "RoomOver",
    "Share",
    "SignalingChanged",
    "StartFailed",
    "TokenMade",
    "TokenShown",
]


@dataclass(frozen=True, slots=True)
class DeviceJoined:
    name: str
    label: str


@dataclass(frozen=True, slots=True)
class DeviceWaits:
    """A device asks to be let in. ``digits`` are on its screen too, unless someone is between."""

    name: str
    label: str
    digits: str | None


@dataclass(frozen=True, slots=True)
class DeviceWithdrew:
    """A waiting device went away."""

    name: str


@dataclass(frozen=True, slots=True)
class LobbyEntered:
    """This device waits until the host's person lets it in."""

    digits: str | None


@dataclass(frozen=True, slots=True)
class DeviceLeft:
    """``verb`` is what happened: left, stopped responding, lost its connection."""

    name: str
    verb: str


@dataclass(frozen=True, slots=True)
class Share:
    """One device's part of the model: layers ``[lo, hi)``."""

    name: str
    lo: int
    hi: int
    held_gb: float


@dataclass(frozen=True, slots=True)
class Dealt:
    model: str
    shares: tuple[Share, ...]
    left_out: tuple[tuple[str, str], ...]
    """Name and reason of devices that hold nothing."""


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """Percent of its layers a device has loaded."""

    name: str
    percent: int


@dataclass(frozen=True, slots=True)
class LoadWaits:
    """This device loads layers of another room first."""


@dataclass(frozen=True, slots=True)
class RoomOnline:
    model: str
    context_size: int


@dataclass(frozen=True, slots=True)
class StartFailed:
    why: str


@dataclass(frozen=True, slots=True)
class Queued:
    place: int


@dataclass(frozen=True, slots=True)
class AnswerStarted:
    asker: str
    question: str
    mine: bool


@dataclass(frozen=True, slots=True)
class AnswerWaits:
    """The answer goes on when the chain is whole again; ``why`` it is not, as a sentence."""

    why: str


@dataclass(frozen=True, slots=True)
class PromptProgress:
    """Prompt tokens fed so far."""

    fed: int
    total: int


@dataclass(frozen=True, slots=True)
class TokenShown:
    """A piece of the answer: whole characters, perhaps none yet."""

    text: str
    mine: bool


@dataclass(frozen=True, slots=True)
class AnswerEnded:
    """``failure`` is a sentence when the answer broke off."""

    stats: str
    mine: bool
    failure: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceStalled:
    """A device stopped responding; the room waits for it."""

    name: str
    silent_s: float


@dataclass(frozen=True, slots=True)
class RoomDegraded:
    why: str


@dataclass(frozen=True, slots=True)
class RoomMended:
    """The chain is whole again, after this many seconds."""

    after_s: float


@dataclass(frozen=True, slots=True)
class NextLinked:
    """This device's link to the next one of the chain stands; ``transport`` carries it."""

    name: str
    transport: str


@dataclass(frozen=True, slots=True)
class HostLost:
    """The link to the host is gone; this device keeps its layers and knocks for a while."""

    verb: str


@dataclass(frozen=True, slots=True)
class HostFound:
    """The host let this device in again."""


@dataclass(frozen=True, slots=True)
class RoomOver:
    """This device is out of the room; the text says why."""

    why: str


@dataclass(frozen=True, slots=True)
class SignalingChanged:
    connected: bool


@dataclass(frozen=True, slots=True)
class PingAnswered:
    """A device answered a ping after this time."""

    rtt_s: float


@dataclass(frozen=True, slots=True)
class LapReturned:
    """A frame came back through the whole chain."""

    kind: LapKind
    lap_s: float


@dataclass(frozen=True, slots=True)
class LapTimedOut:
    """A frame did not come back in the time that it has."""

    kind: LapKind


@dataclass(frozen=True, slots=True)
class TokenMade:
    """The host chose a token of an answer; ``gap_s`` after the one before, if there is one."""

    gap_s: float | None


@dataclass(frozen=True, slots=True)
class AnswerResumed:
    """An answer that was interrupted goes on."""


@dataclass(frozen=True, slots=True)
class AnswerMeasured:
    """The figures of an answer that ended on this host. Times count from the question's arrival."""

    outcome: Outcome
    queued_s: float
    ttft_s: float | None
    """To the first token."""
    took_s: float
    prompt_tokens: int
    answer_tokens: int


@dataclass(frozen=True, slots=True)
class Notice:
    """Something worth a line that changes nothing."""

    text: str


type Event = (
    DeviceJoined
    | DeviceWaits
    | DeviceWithdrew
    | LobbyEntered
    | DeviceLeft
    | Dealt
    | LoadProgress
    | LoadWaits
    | RoomOnline
    | StartFailed
    | Queued
    | AnswerStarted
    | AnswerWaits
    | PromptProgress
    | TokenShown
    | AnswerEnded
    | DeviceStalled
    | RoomDegraded
    | RoomMended
    | NextLinked
    | HostLost
    | HostFound
    | RoomOver
    | SignalingChanged
    | PingAnswered
    | LapReturned
    | LapTimedOut
    | TokenMade
    | AnswerResumed
    | AnswerMeasured
    | Notice
)
type Notify = Callable[[Event], None]
