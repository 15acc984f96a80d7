"""A loader of fake shards that takes no more than its device lends."""

from dataclasses import dataclass

from poolhouse_node.room.pledge import GIB
from poolhouse_node.shard import BeyondPledge, FakeShard
from tests.support.fake_model import FakeLoader, make_shard

__all__ = ["LAYER_BYTES", "PledgedLoader"]

LAYER_BYTES = 1 << 20
"""What the host of a simulated room counts for a layer."""


@dataclass
class PledgedLoader(FakeLoader):
    """Takes ``layer_bytes`` a layer from ``budget`` until the part closes.

    Refuses as the engine does, before anything is loaded.
    """

    budget: object = None
    model: str = "fake"
    layer_bytes: int = LAYER_BYTES

    async def load(self, model, layers, *, context_size, host, progress) -> FakeShard:
        size_bytes, left_bytes = self._size_bytes(layers), self.budget.left_bytes()
        if size_bytes > left_bytes:
            raise BeyondPledge(
                f"These layers need {size_bytes / GIB:.3f} GB of memory; {left_bytes / GIB:.3f} GB "
                "are left of what this device lends.",
                size_bytes,
            )
        self.budget.take((self.model, layers), size_bytes, 0)
        await super().load(
            model, layers, context_size=context_size, host=host, progress=lambda _: None
        )
        shard = make_shard(layers, context_size=context_size, host=host, kind=_PledgedShard)
        shard.when_closed = self.budget.give_back
        return shard

    def _size_bytes(self, layers: tuple[int, int]) -> int:
        return (layers[1] - layers[0]) * self.layer_bytes


class _PledgedShard(FakeShard):
    def close(self) -> None:
        super().close()
        self.when_closed()
