"""Attention over pages against float64, wherever blocks lie; the ledger's own refusals."""

import random
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.engine.layers.attention import causal_mask
from poolhouse_node.engine.paged.attention import paged_attention
from poolhouse_node.engine.paged.ledger import BlockLedger
from poolhouse_node.engine.paged.pages import KeyValuePages, Span, page_spans
from poolhouse_node.engine.paged.recurrent import RecurrentPool
from poolhouse_node.engine.state import AttentionShape, RecurrentShape
from poolhouse_node.shard import ShardError

PAGE_ROWS, BLOCKS = 8, 12
CPU = torch.device("cpu")
SHAPES = {"grouped": (6, 2, 16), "one each": (3, 3, 8), "one shared": (4, 1, 32)}
# Float32 keeps seven digits, values are about 1, sums have a hundred terms.
TOLERANCE = 2e-6


def clear_attention(queries, keys, values, position):
    """One column and one head at a time, float64. [n, heads * size]"""
    queries, keys, values = (each.double() for each in (queries, keys, values))
    n, heads, size = queries.shape
    group = heads // keys.shape[1]
    out = torch.zeros(n, heads, size, dtype=torch.float64)
    for column in range(n):
        rows = position + column + 1
        for head in range(heads):
            scores = keys[:rows, head // group] @ queries[column, head] / size**0.5
            out[column, head] = scores.softmax(0) @ values[:rows, head // group]
    return out.flatten(1)


@pytest.mark.parametrize("heads_first", [True, False], ids=["heads first", "rows first"])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_attention_is_what_it_must_be_and_the_same_wherever_blocks_lie(shape, heads_first, data):
    heads, kv_heads, size = shape
    n = data.draw(st.integers(1, 20), label="columns")
    position = data.draw(st.integers(0, 60), label="position")
    table = data.draw(st.permutations(range(1, BLOCKS)), label="blocks")
    torch.manual_seed(n * 100 + position)
    rows = position + n
    queries = torch.randn(n, heads, size)
    keys, values = torch.randn(2, rows, kv_heads, size)
    mask = causal_mask(n, position, heads // kv_heads, CPU)
    results = []
    for blocks in (range(1, BLOCKS), table):
        pages = KeyValuePages(
            AttentionShape(2, kv_heads, size),
            BLOCKS,
            CPU,
            page_rows=PAGE_ROWS,
            heads_first=heads_first,
        )
        for first, last in ((0, position), (position, rows)):
            spans = page_spans(blocks, first, last, PAGE_ROWS)
            pages.write(1, spans, keys[first:last], values[first:last])
        spans = page_spans(blocks, 0, rows, PAGE_ROWS)
        results.append(paged_attention(queries, pages, 1, spans, mask))
    if heads_first:
        assert torch.equal(*results)
    wanted = clear_attention(queries, keys, values, position)
    for result in results:
        assert float((result - wanted).abs().max()) < TOLERANCE


@given(
    table=st.permutations(range(1, BLOCKS)),
    ends=st.tuples(*[st.integers(0, PAGE_ROWS * (BLOCKS - 1))] * 2),
)
def test_spans_are_the_rows_in_order_and_as_few_as_can_be(table, ends):
    first, last = sorted(ends)
    spans = page_spans(table, first, last, PAGE_ROWS)
    rows = [row for span in spans for row in range(span.start, span.start + span.count)]
    assert rows == [
        table[row // PAGE_ROWS] * PAGE_ROWS + row % PAGE_ROWS for row in range(first, last)
    ]
    assert all(a.start + a.count != b.start for a, b in pairwise(spans))


def test_blocks_in_a_row_are_one_span_and_read_without_a_copy():
    pages = KeyValuePages(
        AttentionShape(1, 2, 4), BLOCKS, CPU, page_rows=PAGE_ROWS, heads_first=True
    )
    spans = page_spans([3, 4, 5], 0, 20, PAGE_ROWS)
    assert spans == [Span(24, 20)]
    keys, _ = pages.read(0, spans)
    assert keys.data_ptr() == pages.read(0, [Span(0, 25)])[0][:, 24:].data_ptr()


def test_growing_keeps_what_is_there():
    for heads_first in (True, False):
        pages = KeyValuePages(
            AttentionShape(2, 2, 4), 2, CPU, page_rows=PAGE_ROWS, heads_first=heads_first
        )
        rows = torch.randn(PAGE_ROWS, 2, 4)
        pages.write(1, [Span(PAGE_ROWS, PAGE_ROWS)], rows, rows + 1)
        before = pages.held_bytes
        pages.grow(6)
        assert pages.held_bytes == 3 * before == 6 * pages.block_bytes
        pages.copy_block(1, 5)
        for start in (1, 5):
            keys, values = pages.read(1, [Span(start * PAGE_ROWS, PAGE_ROWS)])
            assert torch.equal(keys, rows.transpose(0, 1))
            assert torch.equal(values, rows.transpose(0, 1) + 1)


class TestLedger:
    def test_a_block_is_taken_once(self):
        ledger = BlockLedger(3)
        ledger.take(1)
        for block in (0, 1, 3):
            with pytest.raises(ValueError, match="is not free"):
                ledger.take(block)

    def test_nobody_can_let_go_of_what_nobody_holds(self):
        ledger = BlockLedger(3)
        for change in (ledger.release, ledger.share):
            for block in (0, 2):
                with pytest.raises(ValueError, match=f"nobody holds block {block}"):
                    change([block])

    def test_a_run_begins_where_it_has_room(self):
        ledger = BlockLedger(12)
        assert ledger.gap_start() == 1
        ledger.take(1)
        assert ledger.gap_start() == 7
        assert ledger.spare() == 11
        for block in range(2, 12):
            ledger.take(block)
        assert ledger.gap_start() is None
        assert ledger.spare() is None
        ledger.grow(14)
        assert ledger.free == 2

    def test_any_walk_keeps_the_counts(self):
        walk, ledger, held = random.Random(3), BlockLedger(6), []
        for _ in range(500):
            block = walk.randrange(1, 6)
            if ledger.is_free(block):
                held.append(ledger.take(block))
            elif walk.random() < 0.5:
                ledger.share([block])
                held.append(block)
            else:
                ledger.release([block])
                held.remove(block)
            assert [ledger.references(b) for b in range(1, 6)] == [
                held.count(b) for b in range(1, 6)
            ]


class TestRecurrentPool:
    SHAPE = RecurrentShape(layers=2, heads=3, key_size=4, value_size=5, channels=6, taps=4)

    def test_slots_are_made_when_needed_and_given_back(self):
        pool = RecurrentPool(self.SHAPE, CPU)
        pool.limit = 2
        assert pool.held_bytes == 0
        slots = [pool.take(), pool.take()]
        assert 0 not in slots
        assert pool.held_bytes == 2 * 4 * 2 * (3 * 4 * 5 + 3 * 6)
        with pytest.raises(ShardError, match="another recurrent state"):
            pool.take()
        for slot in slots:
            pool.release(slot)
        for slot in (0, slots[0]):
            with pytest.raises(ValueError, match="nobody holds"):
                pool.release(slot)
        pool.shrink()
        assert pool.held_bytes == 0

    def test_a_state_is_copied_whole_and_cleared_whole(self):
        pool = RecurrentPool(self.SHAPE, CPU)
        pool.limit = 2
        one, other = pool.take(), pool.take()
        for layer in range(2):
            pool.layer(one, layer).memory.fill_(layer + 1)
            pool.layer(one, layer).window.fill_(layer + 3)
        pool.copy(one, other)
        pool.clear(one)
        for layer in range(2):
            assert (pool.layer(other, layer).memory == layer + 1).all()
            assert (pool.layer(other, layer).window == layer + 3).all()
            assert not pool.layer(one, layer).memory.any()
            assert not pool.layer(one, layer).window.any()
