"""Saving a long conversation: numbers are written down, keys and values stay where they are."""

import statistics
import time

import pytest
import torch

from poolhouse_node.engine.paged.pool import StatePool
from poolhouse_node.engine.paged.sequence import RoomState
from poolhouse_node.engine.state import AttentionShape, StateShape

pytestmark = [pytest.mark.perf]

TOKENS, CHECKPOINTS = 10_000, 50
LAYERS = 2  # of the 16 that attend in the 27B shape: blocks are as many, only smaller
PROMISED_S = 1e-3


@pytest.fixture
def room():
    shape = StateShape(
        TOKENS + CHECKPOINTS,
        attention=AttentionShape(layers=LAYERS, kv_heads=4, head_size=256),
    )
    state = RoomState(StatePool(shape, torch.device("cpu")), shape, saved_states=CHECKPOINTS)
    write(state, TOKENS)
    yield state
    state.close()


def write(state: RoomState, columns: int) -> None:
    with state.frame(state.length, columns, snapshots=False):
        pass


def test_checkpoints_cost_no_copy_and_what_they_differ_by(room, record_property):
    """A token between two of them: then they differ in the last block."""
    pool, times_s = room.pool, []
    whole = pool.ledger.size - 1 - pool.ledger.free
    for slot in range(CHECKPOINTS):
        copied = pool.pages.copied_bytes
        started = time.perf_counter()
        room.save(slot)
        times_s.append(time.perf_counter() - started)
        assert pool.pages.copied_bytes == copied
        write(room, 1)
        assert pool.pages.copied_bytes - copied <= pool.pages.block_bytes
    used = pool.ledger.size - 1 - pool.ledger.free
    median_s, block = statistics.median(times_s), pool.pages.block_bytes
    record_property("save_s", median_s)
    print(
        f"a save: {median_s * 1e6:.0f} us, the slowest {max(times_s) * 1e6:.0f} us; the "
        f"conversation: {whole * block / 2**20:.0f} MiB, with {CHECKPOINTS} checkpoints "
        f"{used * block / 2**20:.0f} MiB, as copies {(CHECKPOINTS + 1) * whole * block / 2**20:.0f}"
    )
    assert used <= whole + CHECKPOINTS + 1
    assert median_s < PROMISED_S
