"""The engine behind the device's loader port: files found or fetched, shards made in a thread."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from poolhouse_node.cli.machine import has_nvidia
from poolhouse_node.compilers import cpu_fault, cuda_fault
from poolhouse_node.device.model import RoomModel
from poolhouse_node.device.ports import ShardLoader
from poolhouse_node.generate.hub_tokenizer import read_hub_tokenizer
from poolhouse_node.generate.tokenizer import Tokenizer, TokenizerError
from poolhouse_node.room.deal import ModelNeeds
from poolhouse_node.shard import ShardError
from poolhouse_node.weights.catalogue import CATALOGUE
from poolhouse_node.weights.errors import WeightsError
from poolhouse_node.weights.facts import read_facts
from poolhouse_node.weights.held import Held
from poolhouse_node.weights.opening import open_weights
from poolhouse_node.weights.watch import PullWatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future
    from pathlib import Path

    from poolhouse_node.engine import PartShelf
    from poolhouse_node.engine.loading import Budget
    from poolhouse_node.shard import Shard
    from poolhouse_node.weights.facts import ModelFacts
    from poolhouse_node.weights.gguf import GgufFile
    from poolhouse_node.weights.source import ModelFile, ModelStore

__all__ = [
    "EngineLoader",
    "PlacedLoader",
    "Shelf",
    "describe_engine",
    "describe_shard",
    "open_model",
]

PULL_SHARE = 0.9
"""Of the progress bar, when the file has to be fetched first: that is the long part."""
DEFAULT_CONTEXT = 2048


def open_model(file: ModelFile, context_asked: int | None, loader: EngineLoader) -> RoomModel:
    """What a host must know of its model. Raises ``WeightsError`` or ``TokenizerError``.

    Layers are counted as large as ``loader`` holds them here; other devices may hold them smaller.
    """
    row = CATALOGUE.get(file.key)
    with open_weights(file.path) as gguf:
        facts = read_facts(gguf, loader.held())
        tokenizer = _tokenizer(file.path, gguf, facts)
    if row is not None:
        context_size = row.context.asked(context_asked)
    else:
        most = facts.trained_context or DEFAULT_CONTEXT
        context_size = min(context_asked or DEFAULT_CONTEXT, most)
    needs = ModelNeeds(facts.layers, facts.layer_bytes(context_size), facts.host_bytes)
    return RoomModel(file.key, file.label, needs, context_size, tokenizer)


def _tokenizer(path: Path, opened: GgufFile, facts: ModelFacts) -> Tokenizer:
    if path.suffix != ".safetensors":
        return Tokenizer.from_metadata(opened.metadata)
    tokenizer = read_hub_tokenizer(path.parent)
    if tokenizer.vocabulary_size > facts.vocabulary_size:
        raise TokenizerError(
            f"The tokenizer.json of {path.parent} has {tokenizer.vocabulary_size} tokens, but its "
            f"model only {facts.vocabulary_size}: they do not belong together."
        )
    return tokenizer


class Shelf:
    """The process's model parts, where rooms find each other's. Imports torch when first asked."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._parts: PartShelf | None = None

    def get(self) -> PartShelf:
        """From any thread."""
        with self._lock:
            if self._parts is None:
                from poolhouse_node.engine import PartShelf

                self._parts = PartShelf()
            return self._parts


def _loader_thread() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(1, thread_name_prefix="loader")


class PlacedLoader(ShardLoader, Protocol):
    """A loader that knows where its shards compute: the room is told what kind of device it is."""

    @property
    def device(self) -> str:
        """As the person said it."""
        ...


@dataclass(slots=True)
class EngineLoader:
    """Makes torch shards. Satisfies :class:`PlacedLoader`."""

    store: ModelStore
    device: str = "auto"
    threads: int = 1
    own: ModelFile | None = None
    """The file this device's person chose, found already. Others are named by the room's host."""
    precision: str = "auto"
    budget: Budget | None = None
    """What may be taken, on a device that lends to rooms of others."""
    shelf: Shelf | None = None
    """Where the rooms of this process find each other's weights."""
    waits: Callable[[], None] = lambda: None
    """Called on the loop when layers of other rooms are loaded first."""
    _thread: ThreadPoolExecutor = field(default_factory=_loader_thread)
    _warm: Future[None] | None = None
    """What :meth:`warm_up` began: no load measures or compiles beside it."""

    def for_room(
        self, shelf: Shelf, budget: Budget, waits: Callable[[], None] = lambda: None
    ) -> EngineLoader:
        """A loader for a room of somebody, perhaps one of several. Its thread is its own, so that
        a download for one of them keeps no other waiting.
        """
        return replace(self, budget=budget, shelf=shelf, waits=waits, _thread=_loader_thread())

    def held(self) -> Held:
        """How this device will hold a model. Known before torch is imported.

        ``auto`` is taken for packed where products with packed weights can be compiled; that they
        are faster on a CPU is measured only when layers come.
        """
        if self.precision == "exact":
            return Held("float32")
        is_packed = self.precision == "packed"
        if self.device.startswith("cuda") or (self.device == "auto" and has_nvidia()):
            return Held("gpu-packed" if is_packed or cuda_fault() is None else "float32")
        is_packed |= self.device in {"auto", "cpu"} and cpu_fault() is None
        return Held("cpu-packed" if is_packed else "float32")

    def warm_up(self) -> None:
        """Import torch in the loader thread now, and compile what ``auto`` measures.

        Both take seconds, and layers will come.
        """
        self._warm = self._thread.submit(self._warm_up)

    def _warm_up(self) -> None:
        from poolhouse_node.engine import choose_precision, pick_device, set_threads

        set_threads(self.threads)
        choose_precision(self.precision, pick_device(self.device))  # loading says what is wrong

    async def load(
        self,
        model: str,
        layers: tuple[int, int],
        *,
        context_size: int,
        host: bool,
        progress: Callable[[float], None],
    ) -> Shard:
        loop = asyncio.get_running_loop()
        stopped = threading.Event()

        def tell(share: float) -> None:
            loop.call_soon_threadsafe(progress, share)

        def waits() -> None:
            loop.call_soon_threadsafe(self.waits)

        def work() -> Shard:
            path, base = self._file(model, tell, stopped)
            if self._warm is not None:
                wait([self._warm])
            from poolhouse_node.engine import load_shard, set_threads

            set_threads(self.threads)
            return load_shard(
                path,
                layers,
                context_size=context_size,
                host=host,
                device=self.device,
                precision=self.precision,
                progress=_scaled(tell, base),
                cancelled=stopped.is_set,
                waits=waits,
                shelf=None if self.shelf is None else self.shelf.get(),
                budget=self.budget,
            )

        loading = self._thread.submit(work)
        try:
            return await asyncio.wrap_future(loading)
        except asyncio.CancelledError:
            loading.add_done_callback(_close_unused)
            raise
        except WeightsError as error:
            raise ShardError(str(error)) from error
        finally:
            stopped.set()

    def _file(
        self, model: str, tell: Callable[[float], None], stopped: threading.Event
    ) -> tuple[Path, float]:
        """The model's file and the share of the progress that finding it took."""
        if self.own is not None and self.own.key == model:
            return self.own.path, 0.0
        fetched = False

        def pulled(done_bytes: int, total_bytes: int | None) -> None:
            nonlocal fetched
            fetched = True
            tell(PULL_SHARE * done_bytes / (total_bytes or done_bytes * 2 or 1))

        file = self.store.resolve_for_room(model, PullWatch(pulled, stopped.is_set))
        return file.path, PULL_SHARE if fetched else 0.0


def _close_unused(loading: Future[Shard]) -> None:
    """A load may be through in the moment in which it is cancelled."""
    if not loading.cancelled() and loading.exception() is None:
        loading.result().close()


def _scaled(tell: Callable[[float], None], base: float) -> Callable[[float], None]:
    return lambda share: tell(base + (1 - base) * share)


_KEPT = {"exact": "float32", "packed": "packed weights"}


def describe_engine(shard: Shard | None) -> str:
    """What loaded layers are computed with, for people and for the JSON line.

    Not what was asked for: sizes that suit no kernel are computed in float32.
    """
    if shard is None:
        return "no engine: no layers are loaded"
    kind, gpu, engine = describe_shard(shard)
    kept = _KEPT.get(getattr(shard, "precision", ""))
    return f"{engine} on {gpu or kind}" + (f", {kept}" if kept else "")


def describe_shard(shard: Shard) -> tuple[str, str, str]:
    """Kind of device, the GPU's name if it is one, and the engine, of loaded layers."""
    device = getattr(shard, "device", None)
    if device is None:  # no engine of ours
        return "cpu", "", type(shard).__name__
    import torch

    gpu = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    return device.type, gpu, f"torch {torch.__version__}"
