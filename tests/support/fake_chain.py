"""A chain of fake shards in one process: what workers would do, without links."""

import asyncio
from dataclasses import dataclass, field

from poolhouse_node.device.layers import apply_control
from poolhouse_node.shard import FakeShard
from poolhouse_node.wire.slices import Frame


@dataclass
class FakeChain:
    """Gives frames back after ``delay_s``; ``fail_at`` names the lap that fails and with what."""

    shards: list[FakeShard] = field(default_factory=list)
    delay_s: float = 0.0
    fail_at: dict[int, Exception] = field(default_factory=dict)
    frames: list[Frame] = field(default_factory=list)
    in_flight: int = 0
    most_in_flight: int = 0

    @property
    def is_empty(self) -> bool:
        return not self.shards

    def lap(self, frame: Frame, kind: str, *, is_barrier: bool = False) -> asyncio.Future[bytes]:
        self.frames.append(frame)
        number = len(self.frames)
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        future = asyncio.get_running_loop().create_future()
        asyncio.get_running_loop().call_later(self.delay_s, self._give_back, number, frame, future)
        return future

    def _give_back(self, number: int, frame: Frame, future: asyncio.Future[bytes]) -> None:
        self.in_flight -= 1
        if number in self.fail_at:
            future.set_exception(self.fail_at[number])
            future.exception()
            return
        data = frame.payload
        for shard in self.shards:
            apply_control(shard, frame.control)
            hidden = shard.run(shard.unpack(data, frame.columns), frame.position)
            data = shard.pack(hidden).data
        future.set_result(data)
