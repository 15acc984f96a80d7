"""What ADR 11 proposes: passes of one fixed width, attention column by column, give equal bits."""

import statistics
import time
from dataclasses import dataclass

import pytest
import torch

from poolhouse_node.engine import load_shard
from poolhouse_node.engine.layers.attention import attend
from poolhouse_node.engine.paged.pages import page_spans
from tests.support.model import needs_model, smollm2_path
from tests.support.vectors import vectors

pytestmark = [pytest.mark.perf]

WIDTH = 16
COLUMNS = 32


@dataclass(slots=True)
class FixedPass:
    """Real columns come first; those that fill the pass up are not attended for."""

    room: object
    position: int
    real: int
    columns: int = WIDTH
    keeps_snapshots: bool = False

    def attend(self, layer, queries, keys, values):
        pool, blocks, real = self.room.pool, self.room.blocks, self.real
        new = page_spans(blocks, self.position, self.position + real, pool.page_rows)
        pool.pages.write(layer, new, keys[:real], values[:real])
        mixed = queries.new_zeros(len(queries), queries[0].numel())
        for column in range(real):
            rows = page_spans(blocks, 0, self.position + column + 1, pool.page_rows)
            one = queries[column : column + 1]
            mixed[column] = attend(one, *pool.pages.read(layer, rows), None)[0]
        return mixed


def run_fixed(shard, hidden, position):
    room, real = shard._state, len(hidden)
    filled = torch.zeros(WIDTH, shard.width)
    filled[:real] = hidden
    with torch.inference_mode(), room.frame(position, real, snapshots=False):
        return shard._part.model.run(filled, FixedPass(room, position, real))[:real].clone()


def median_ms(call, repeats: int = 9) -> float:
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return 1e3 * statistics.median(times[1:])


@needs_model
def test_a_fixed_width_gives_equal_bits_at_a_price():
    prompt = vectors("smollm2_greedy")["prompts"]["long"]
    ids, base = prompt["prompt_ids"], len(prompt["prompt_ids"])
    shard = load_shard(smollm2_path(), (0, 30), context_size=1100, host=True, device="cpu")
    shard.run(shard.embed(ids), 0)
    columns = shard.embed(prompt["greedy_ids"][:COLUMNS])
    alone = [run_fixed(shard, columns[i : i + 1], base + i) for i in range(COLUMNS)]
    for width in (2, 5, 8, 16):
        for start in range(0, COLUMNS - width + 1, width):
            frame = run_fixed(shard, columns[start : start + width], base + start)
            assert torch.equal(frame, torch.cat(alone[start : start + width]))
    price = median_ms(lambda: run_fixed(shard, columns[:1], base)) / median_ms(
        lambda: shard.run(columns[:1], base)
    )
    print(f"a token at a fixed width of {WIDTH} takes {price:.2f} times as long")
    assert price > 1
    shard.close()
