"""A model without weights for rooms that are simulated: tokenizer, loader, compute, answers."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from poolhouse_node.room.deal import ModelNeeds
from poolhouse_node.shard import FakeShard, ShardError

LAYERS = 12
VOCABULARY = 1000
END_ID = 999
START_ID = 998


@dataclass
class FakeTokenizer:
    """Every character is a token; token ``n`` reads back as ``<n>``."""

    end_ids: frozenset[int] = frozenset({END_ID})
    chat_template: str | None = None
    speaks_chatml: bool = True

    def special_id(self, name: str) -> int:
        return {"<|im_start|>": START_ID, "<|im_end|>": END_ID}[name]

    def encode(self, text: str) -> list[int]:
        return [ord(character) % 900 for character in text]

    def token_bytes(self, token: int) -> bytes:
        return f"<{token}>".encode()

    def decode(self, ids: Sequence[int]) -> str:
        return b"".join(map(self.token_bytes, ids)).decode()


def needs() -> ModelNeeds:
    """Twelve layers of 1 MiB, 2 MiB for the host."""
    return ModelNeeds(layers=LAYERS, layer_bytes=1 << 20, host_bytes=2 << 20)


def make_shard(
    layers: tuple[int, int],
    *,
    context_size: int,
    host: bool,
    kind: type[FakeShard] = FakeShard,
) -> FakeShard:
    return kind(
        layers[0],
        layers[1],
        vocabulary_size=VOCABULARY,
        context_size=context_size,
        has_embedding=host,
    )


@dataclass
class InlineCompute:
    """Runs calls where they are, after ``cost_s`` of (virtual) time."""

    cost_s: Callable[[], float] = lambda: 0.0
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run[T](self, call: Callable[[], T]) -> T:
        async with self._lock:
            await asyncio.sleep(self.cost_s())
            return call()


@dataclass
class FakeLoader:
    """Loads fake shards, in ``steps`` steps of ``step_s`` each; ``fails`` with a sentence."""

    step_s: float = 0.0
    steps: int = 4
    fails: str | None = None
    kind: type[FakeShard] = FakeShard
    loaded: list[tuple[int, int]] = field(default_factory=list)

    async def load(
        self,
        model: str,
        layers: tuple[int, int],
        *,
        context_size: int,
        host: bool,
        progress: Callable[[float], None],
    ) -> FakeShard:
        for step in range(self.steps):
            await asyncio.sleep(self.step_s)
            progress((step + 1) / self.steps)
        if self.fails:
            raise ShardError(self.fails)
        self.loaded.append(layers)
        return make_shard(layers, context_size=context_size, host=host, kind=self.kind)
