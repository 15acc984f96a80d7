"""The series of a device that count what happens. What it is now is in ``ops.readings``.

Every label is a closed set and every child exists from the start, so that rates have a beginning.
Nothing of a person, a peer or a room is a label.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from prometheus_client import Counter, Gauge, Histogram

from poolhouse_node.ops import bounds

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from prometheus_client import CollectorRegistry

__all__ = [
    "DealCause",
    "EngineError",
    "FetchSource",
    "GenOutcome",
    "JoinOutcome",
    "LapKind",
    "LeaveReason",
    "NodeMetrics",
    "RejoinCause",
    "StepKind",
    "TokenKind",
]


class JoinOutcome(StrEnum):
    """How trying to get into a room ended; a host that opened its room joined it."""

    JOINED = "joined"
    REFUSED = "refused"
    FAILED = "failed"


class RejoinCause(StrEnum):
    """Why a device had to come back into its room."""

    HOST_LEFT = "host_left"
    HOST_SILENT = "host_silent"
    LINK_LOST = "link_lost"


class LeaveReason(StrEnum):
    """How the host saw a device go."""

    LEFT = "left"
    SILENT = "silent"
    LINK_LOST = "link_lost"
    OTHER = "other"


class DealCause(StrEnum):
    """The room's first deal, or one after it."""

    FIRST = "first"
    AGAIN = "again"


class LapKind(StrEnum):
    """What the frame of a lap carried."""

    DECODE = "decode"
    VERIFY = "verify"
    PREFILL = "prefill"


class StepKind(StrEnum):
    """What the engine computed: columns through the layers, or the head over one."""

    DECODE = "decode"
    VERIFY = "verify"
    PREFILL = "prefill"
    HEAD = "head"


class EngineError(StrEnum):
    """What an engine failed with."""

    NONFINITE = "nonfinite"
    OOM = "oom"
    SHAPE = "shape"
    OTHER = "other"


class FetchSource(StrEnum):
    """Where a model's file came from."""

    NETWORK = "network"
    CACHE = "cache"


class GenOutcome(StrEnum):
    """How an answer ended."""

    STOP = "stop"
    LENGTH = "length"
    STOPPED_BY_USER = "stopped_by_user"
    LINK_LOST = "link_lost"
    TIMEOUT = "timeout"
    ERROR = "error"


class TokenKind(StrEnum):
    """Tokens of questions, and of answers."""

    PROMPT = "prompt"
    ANSWER = "answer"


@dataclass(slots=True)
class NodeMetrics:
    """Everything a device counts, in one registry."""

    registry: CollectorRegistry
    joins: dict[str, Counter] = field(init=False)
    rejoins: dict[str, Counter] = field(init=False)
    devices_joined: Counter = field(init=False)
    devices_left: dict[str, Counter] = field(init=False)
    deals: dict[str, Counter] = field(init=False)
    rtt_s: Histogram = field(init=False)
    lap_s: dict[str, Histogram] = field(init=False)
    lap_timeouts: dict[str, Counter] = field(init=False)
    step_s: dict[str, Histogram] = field(init=False)
    engine_tokens: dict[str, Counter] = field(init=False)
    engine_errors: dict[str, Counter] = field(init=False)
    load_s: Histogram = field(init=False)
    load_errors: Counter = field(init=False)
    fetch_bytes: dict[str, Counter] = field(init=False)
    fetch_errors: Counter = field(init=False)
    generations: dict[str, Counter] = field(init=False)
    resumed: Counter = field(init=False)
    tokens: dict[str, Counter] = field(init=False)
    queue_s: Histogram = field(init=False)
    first_token_s: Histogram = field(init=False)
    inter_token_s: Histogram = field(init=False)
    generation_s: Histogram = field(init=False)
    prompt_tokens: Histogram = field(init=False)
    answer_tokens: Histogram = field(init=False)
    loop_lag_s: Histogram = field(init=False)
    _node_info: Gauge = field(init=False)

    def __post_init__(self) -> None:
        self._of_rooms()
        self._of_laps()
        self._of_the_engine()
        self._of_models()
        self._of_generations()
        text = "How late the event loop ran a timer that is due every half second."
        self.loop_lag_s = self._histogram("loop_lag_seconds", text, bounds.LOOP_LAG_S)

    def describe_node(self, device: str, gpu: str, backend: str) -> None:
        """Say what computes here, once that is known."""
        self._node_info.labels(device, gpu, backend).set(1)

    # ---- by area -------------------------------------------------------------------------------

    def _of_rooms(self) -> None:
        self.joins = self._counters(
            "room_joins", "Attempts to get into a room, by outcome.", "outcome", JoinOutcome
        )
        self.rejoins = self._counters(
            "room_rejoins", "Returns into a room after its host was lost.", "cause", RejoinCause
        )
        self.devices_joined = self._counter(
            "room_devices_joined", "Devices this host let into its room."
        )
        self.devices_left = self._counters(
            "room_devices_left", "Devices that left this host's room.", "reason", LeaveReason
        )
        self.deals = self._counters(
            "deals", "How often this host dealt the layers.", "cause", DealCause
        )
        self.rtt_s = self._histogram(
            "link_rtt_seconds", "Round trips of pings to other devices.", bounds.RTT_S
        )

    def _of_laps(self) -> None:
        self.lap_s = self._histograms(
            "lap_duration_seconds",
            "From a frame's start at the host to its return through the chain.",
            bounds.LAP_S,
            "kind",
            LapKind,
        )
        self.lap_timeouts = self._counters(
            "lap_timeouts", "Frames that did not come back in their time.", "kind", LapKind
        )

    def _of_the_engine(self) -> None:
        self._node_info = Gauge(
            "poolhouse_node_info",
            "What computes on this device; always 1.",
            ("device", "gpu", "backend"),
            registry=self.registry,
        )
        self.step_s = self._histograms(
            "engine_step_seconds",
            "Computing one frame on this device, from its bytes or tokens to its result.",
            bounds.ENGINE_STEP_S,
            "kind",
            StepKind,
        )
        kinds = [kind for kind in StepKind if kind is not StepKind.HEAD]
        self.engine_tokens = self._counters(
            "engine_tokens", "Columns that went through the layers of this device.", "kind", kinds
        )
        self.engine_errors = self._counters(
            "engine_errors", "Frames and loads that the engine failed at.", "kind", EngineError
        )

    def _of_models(self) -> None:
        self.load_s = self._histogram(
            "model_load_seconds",
            "Loading the layers that were dealt to this device.",
            bounds.LOAD_S,
        )
        self.load_errors = self._counter(
            "model_load_errors", "Layers that could not be loaded here."
        )
        self.fetch_bytes = self._counters(
            "model_fetch_bytes", "Bytes of model files, by where they came from.", "source",
            FetchSource,
        )  # fmt: skip
        self.fetch_errors = self._counter(
            "model_fetch_errors", "Model files that could not be found or fetched."
        )

    def _of_generations(self) -> None:
        self.generations = self._counters(
            "gen", "Answers this host ended, by outcome.", "outcome", GenOutcome
        )
        self.resumed = self._counter("gen_resumed", "How often an interrupted answer went on.")
        self.tokens = self._counters(
            "gen_tokens", "Tokens of questions and of answers.", "kind", TokenKind
        )
        self.queue_s = self._histogram(
            "gen_queue_seconds", "From a question's arrival to its turn.", bounds.QUEUE_S
        )
        self.first_token_s = self._histogram(
            "gen_time_to_first_token_seconds",
            "From a question's arrival to the first token of its answer.",
            bounds.FIRST_TOKEN_S,
        )
        self.inter_token_s = self._histogram(
            "gen_inter_token_seconds", "Between two tokens of an answer.", bounds.INTER_TOKEN_S
        )
        self.generation_s = self._histogram(
            "gen_duration_seconds",
            "From a question's arrival to the end of its answer.",
            bounds.GENERATION_S,
        )
        self.prompt_tokens = self._histogram(
            "gen_prompt_tokens", "Tokens of a prompt.", bounds.TOKENS
        )
        self.answer_tokens = self._histogram(
            "gen_answer_tokens", "Tokens of an answer.", bounds.TOKENS
        )

    # ---- making one ----------------------------------------------------------------------------

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(f"poolhouse_{name}", text, registry=self.registry)

    def _counters(
        self, name: str, text: str, label: str, values: Iterable[str]
    ) -> dict[str, Counter]:
        family = Counter(f"poolhouse_{name}", text, (label,), registry=self.registry)
        return {value: family.labels(value) for value in values}

    def _histogram(self, name: str, text: str, buckets: Sequence[float]) -> Histogram:
        return Histogram(f"poolhouse_{name}", text, buckets=buckets, registry=self.registry)

    def _histograms(
        self, name: str, text: str, buckets: Sequence[float], label: str, values: Iterable[str]
    ) -> dict[str, Histogram]:
        family = Histogram(
            f"poolhouse_{name}", text, (label,), buckets=buckets, registry=self.registry
        )
        return {value: family.labels(value) for value in values}
