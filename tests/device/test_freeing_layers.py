"""A worker's layers are closed once, whatever is cancelled meanwhile."""

import asyncio

from poolhouse_node.device.tasks import Tasks
from poolhouse_node.device.turns import Turns
from poolhouse_node.device.worker import Worker
from poolhouse_node.shard import FakeShard
from poolhouse_node.wire.messages.loading import Load
from tests.support.fake_model import FakeLoader, InlineCompute
from tests.support.virtual_time import run_virtual


class CountedShard(FakeShard):
    closed = 0

    def close(self) -> None:
        super().close()
        CountedShard.closed += 1


def load(lo: int, hi: int) -> Load:
    return Load(v=4, model="fake", range=(lo, hi), ctx=64, kv="f16", next="host", host="h")


def test_layers_whose_closing_was_cancelled_while_another_room_computed_are_closed_later():
    CountedShard.closed = 0

    async def main():
        turns, tasks = Turns(InlineCompute()), Tasks()
        other = turns.for_room()
        worker = Worker(
            loader=FakeLoader(kind=CountedShard),
            compute=turns.for_room(),
            tasks=tasks,
            tell_host=lambda _: None,
            open_link=None,
            name_of=str,
            host_link=lambda: None,
            notify=lambda _: None,
            loading_changed=lambda _: None,
            beyond_pledge=lambda _: None,
        )
        worker.take_load(load(0, 4))
        await asyncio.sleep(1)
        await turns.begin(other)  # a long frame
        worker.take_load(load(4, 8))
        await asyncio.sleep(1)
        worker.take_load(load(2, 6))  # cancels the closing, which waits for its turn
        await asyncio.sleep(1)
        assert CountedShard.closed == 0
        turns.end()
        await asyncio.sleep(1)
        assert worker.layers == (2, 6)
        closed = CountedShard.closed
        await worker.close()
        await tasks.close()
        return closed, CountedShard.closed

    assert run_virtual(main()) == (1, 2)
