"""Making model parts out of model files, and shards over them."""

from __future__ import annotations

import contextlib
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.engine.devices import on_device, pick_device
from poolhouse_node.engine.head import Head
from poolhouse_node.engine.load_turns import LoadTurns
from poolhouse_node.engine.memory import (
    MemoryNeed,
    available_bytes,
    held_as,
    loading_bytes,
    weight_bytes,
)
from poolhouse_node.engine.model_part import ModelPart
from poolhouse_node.engine.models import find_architecture
from poolhouse_node.engine.paged.pages import PAGE_ROWS
from poolhouse_node.engine.precision import choose_precision, keeper_of
from poolhouse_node.engine.tensors import LoadCancelled, LoadWatch, TensorLoader
from poolhouse_node.engine.torch_shard import TorchShard
from poolhouse_node.shard import BeyondPledge, OutOfMemory, ShardError
from poolhouse_node.weights.errors import ModelFileError
from poolhouse_node.weights.opening import open_weights

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterator, Sequence
    from pathlib import Path

    import torch

    from poolhouse_node.engine.models import Architecture, Config
    from poolhouse_node.engine.precision import Precision
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["SAVED_STATES", "Budget", "PartShelf", "PartSpec", "load_shard"]

SAVED_STATES = 8
"""Conversations a host may keep: four pins, three answers, one to spare (generation, section 9)."""
_OF_THE_PLEDGE = "are left of what this device lends"


@dataclass(frozen=True, slots=True)
class PartSpec:
    """Which part of which model, where. Rooms that ask for the same share its weights."""

    path: Path
    layers: tuple[int, int]
    context_size: int
    host: bool
    """With the embedding and the head."""
    device: torch.device
    precision: Precision = "exact"
    may_be_exact: bool = False
    """Exact will do as well, where a model's sizes do not suit kernels."""


class Budget(Protocol):
    """What a room may take of the memory that its device lends to all its rooms.

    Asked and told from the threads that load and compute.
    """

    def left_bytes(self) -> int:
        """What no room took."""
        ...

    def take(self, part: Hashable, weights_bytes: int, state_bytes: int) -> None:
        """The room takes this; rooms on the same ``part`` share its weights."""
        ...

    def give_back(self) -> None:
        """The room holds nothing any more."""
        ...


class PartShelf:
    """The model parts of one process, each for as long as a room uses it."""

    def __init__(
        self,
        available: Callable[[torch.device], int | None] = available_bytes,
        page_rows: int = PAGE_ROWS,
    ) -> None:
        """``available`` tells how much memory may be taken now."""
        self._available = available
        self._page_rows = page_rows
        self._parts: dict[PartSpec, ModelPart] = {}
        self._lock = threading.Lock()
        self._turns = LoadTurns()

    def open(
        self, spec: PartSpec, watch: LoadWatch, saved_states: int, budget: Budget | None = None
    ) -> TorchShard:
        """A room on this part, which is loaded unless another room holds it.

        For ``saved_states`` saved conversations memory is reserved, fewer if there is too little:
        ``TorchShard.saved_states`` says. ``budget`` may allow less than there is; what the room
        takes is noted there until it closes. Raises what :func:`load_shard` does.
        """
        with self._turns.turn(watch) as own_watch:
            with self._lock:
                part = self._parts.get(spec)
            if part is not None:
                with part.turn:
                    if not part.is_closed:
                        own_watch.progress(1.0)
                        return self._open_room(part, spec, saved_states, budget)
            return self._load(spec, own_watch, saved_states, budget)

    def _open_room(
        self, part: ModelPart, spec: PartSpec, saved_states: int, budget: Budget | None
    ) -> TorchShard:
        need = MemoryNeed(0, part.state_shape, self._page_rows)
        saved_states = self._saved_states(need, saved_states, part.device, budget)
        if budget is None:
            return TorchShard(part, saved_states=saved_states)
        budget.take(spec, part.weight_bytes, need.state_bytes(saved_states))
        return TorchShard(part, saved_states=saved_states, when_closed=budget.give_back)

    def _saved_states(
        self, need: MemoryNeed, wanted: int, device: torch.device, budget: Budget | None
    ) -> int:
        possible = need.saved_states(wanted, self._available(device))
        if budget is None:
            return possible
        lasting = replace(need, loading=0)  # a pledge is of what is held
        try:
            return lasting.saved_states(possible, budget.left_bytes(), _OF_THE_PLEDGE)
        except OutOfMemory as error:
            raise BeyondPledge(str(error), lasting.least_bytes) from error

    def _load(
        self, spec: PartSpec, watch: LoadWatch, saved_states: int, budget: Budget | None
    ) -> TorchShard:
        with open_weights(spec.path) as file:
            architecture = find_architecture(file)
            config = architecture.read_config(file)
            suited = _suited(spec, config)
            names = _tensor_names(file, architecture, config, spec)
            need = _need(file, config, names, suited, self._page_rows)
            saved_states = self._saved_states(need, saved_states, spec.device, budget)
            keeper = keeper_of(suited.precision, spec.device)
            loader = TensorLoader(file, names, spec.device, watch, keeper)
            with _taken(budget, spec, need, saved_states) as give_back, on_device(spec.device):
                part = _read_part(
                    file, architecture, config, loader, spec=suited, page_rows=self._page_rows
                )
                part.weight_bytes = need.weights
                part.warm_up(watch.cancelled)
                if watch.cancelled():
                    raise LoadCancelled
                shard = TorchShard(part, saved_states=saved_states, when_closed=give_back)
        part.when_freed = lambda: self._forget(spec, part)
        with self._lock:
            self._parts[spec] = part
        return shard

    def _forget(self, spec: PartSpec, part: ModelPart) -> None:
        """Called by whoever closes a room, perhaps the thread that all rooms compute in: it does
        not wait for a load.
        """
        with self._lock:
            if self._parts.get(spec) is part:
                del self._parts[spec]


@contextlib.contextmanager
def _taken(
    budget: Budget | None, spec: PartSpec, need: MemoryNeed, saved_states: int
) -> Iterator[Callable[[], None]]:
    """Note what a load takes before it does, until it fails; gives what the closed room calls."""
    if budget is None:
        yield lambda: None
        return
    budget.take(spec, need.weights, need.state_bytes(saved_states))
    try:
        yield budget.give_back
    except BaseException:
        budget.give_back()
        raise


def load_shard(
    path: Path,
    layers: tuple[int, int],
    *,
    context_size: int,
    host: bool,
    device: str = "auto",
    progress: Callable[[float], None] = lambda _: None,
    cancelled: Callable[[], bool] = lambda: False,
    waits: Callable[[], None] = lambda: None,
    saved_states: int = SAVED_STATES,
    shelf: PartShelf | None = None,
    precision: str = "exact",
    budget: Budget | None = None,
) -> TorchShard:
    """Load layers ``[lo, hi)``; with ``host`` the embedding and head as well.

    Reads only the tensors it needs, none if another room of ``shelf`` holds them. ``progress``
    gets 0..1; ``cancelled`` is asked before each tensor; ``waits`` hears that other loads of
    ``shelf`` come first; ``precision`` is explained at
    :func:`~poolhouse_node.engine.precision.choose_precision`. Raises :class:`ShardError` with a
    sentence for a person (``LoadCancelled`` when asked to stop), before loading if there is too
    little memory or ``budget`` allows too little of it.
    """
    try:
        chosen = pick_device(device)
        spec = PartSpec(
            path,
            layers,
            context_size,
            host,
            chosen,
            choose_precision(precision, chosen),
            precision == "auto",
        )
        shelf = shelf or PartShelf()
        return shelf.open(spec, LoadWatch(progress, cancelled, waits), saved_states, budget)
    except ModelFileError as error:
        raise ShardError(str(error)) from error


def _on_kernels(spec: PartSpec) -> bool:
    return spec.precision == "packed" and spec.device.type == "cuda"


def _suited(spec: PartSpec, config: Config) -> PartSpec:
    """``spec`` with a precision in which this model can be computed."""
    if not _on_kernels(spec) or config.kernel_sizes.fit:
        return spec
    if not spec.may_be_exact:
        raise ShardError(
            "The sizes of this model do not suit packed weights on a GPU: use --precision exact."
        )
    return replace(spec, precision="exact")


def _need(
    file: GgufFile, config: Config, names: Sequence[str], spec: PartSpec, page_rows: int
) -> MemoryNeed:
    shape = config.state_shape(spec.layers, spec.context_size)
    weights = weight_bytes(file, names, held_as(spec.precision, spec.device))
    if not _on_kernels(spec):
        return MemoryNeed(weights, shape, page_rows, loading=loading_bytes(file, names))
    return MemoryNeed(weights, shape.in_halves(), page_rows, config.kernel_sizes.workspace_bytes)


def _tensor_names(
    file: GgufFile, architecture: Architecture, config: Config, spec: PartSpec
) -> list[str]:
    lo, hi = spec.layers
    if not 0 <= lo < hi <= config.layers:
        raise ShardError(f"Layers {lo} to {hi} are not in a model of {config.layers} layers.")
    if spec.context_size < 1:
        raise ShardError("A context needs at least one position.")
    host_names = Head.tensor_names(file) if spec.host else []
    return architecture.tensor_names(file, spec.layers) + host_names


def _read_part(
    file: GgufFile,
    architecture: Architecture,
    config: Config,
    loader: TensorLoader,
    *,
    spec: PartSpec,
    page_rows: int,
) -> ModelPart:
    head = Head.load(file, config.width, config.epsilon, loader) if spec.host else None
    model = architecture.load(
        config, spec.layers, loader, context_size=spec.context_size, device=spec.device
    )
    return ModelPart(
        layers=spec.layers,
        width=config.width,
        context_size=spec.context_size,
        device=spec.device,
        model=model,
        head=head,
        precision=spec.precision,
        on_kernels=_on_kernels(spec),
        page_rows=page_rows,
    )
