"""What a measured model part counts, and that it is the part it measures."""

import pytest
from prometheus_client import CollectorRegistry

from poolhouse_node.ops.measured import MeasuredShard, memory_of
from poolhouse_node.ops.metrics import NodeMetrics
from poolhouse_node.ops.readings import EngineMemory
from poolhouse_node.shard import FakeShard, Holding, OutOfMemory, Packed, ShardError

STEP = "poolhouse_engine_step_seconds"


class Clock:
    """A second passes with every look at it."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


class SickShard(FakeShard):
    """Its layers fail as told."""

    error: ShardError | None = None
    amax = 1.0

    def run(self, hidden, position, *, snapshots=False):
        if self.error:
            raise self.error
        return super().run(hidden, position, snapshots=snapshots)

    def pack(self, hidden):
        return Packed(super().pack(hidden).data, self.amax)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def shard(registry):
    inner = SickShard(0, 4, has_embedding=True)
    return MeasuredShard(inner, NodeMetrics(registry), clock=Clock())


def counted(registry, name, **labels):
    return registry.get_sample_value(name, labels)


@pytest.mark.parametrize(
    ("ids", "snapshots", "kind"),
    [([5], False, "decode"), ([5, 6, 7], True, "verify"), ([5, 6], False, "prefill")],
)
def test_a_frame_is_one_step_of_its_kind(registry, shard, ids, snapshots, kind):
    if snapshots:
        data = b"\0" * (2 * len(ids) * shard.width)
        shard.forward_bytes(data, len(ids), 0, snapshots=True)
    else:
        shard.forward_ids(ids, 0)
    assert counted(registry, f"{STEP}_count", kind=kind) == 1
    assert counted(registry, f"{STEP}_sum", kind=kind) == 1.0
    assert counted(registry, "poolhouse_engine_tokens_total", kind=kind) == len(ids)


def test_the_head_alone_is_a_step_of_its_own(registry, shard):
    shard.top_of_bytes(shard.forward_ids([5], 0).data, 4)
    assert counted(registry, f"{STEP}_count", kind="head") == 1
    assert counted(registry, f"{STEP}_count", kind="decode") == 1


def test_layers_and_head_without_a_lap_between_are_one_step(registry, shard):
    shard.top_of_ids([5], 0, 4)
    assert counted(registry, f"{STEP}_count", kind="decode") == 1
    assert counted(registry, f"{STEP}_count", kind="head") == 0


@pytest.mark.parametrize(
    ("error", "kind"), [(OutOfMemory("none left"), "oom"), (ShardError("broken"), "other")]
)
def test_errors_are_counted_and_go_on(registry, shard, error, kind):
    shard._shard.error = error
    with pytest.raises(ShardError, match=str(error)):
        shard.forward_ids([5], 0)
    assert counted(registry, "poolhouse_engine_errors_total", kind=kind) == 1


def test_a_frame_of_the_wrong_size_is_an_error_of_shape(registry, shard):
    with pytest.raises(ShardError):
        shard.forward_bytes(b"123", 1, 0)
    assert counted(registry, "poolhouse_engine_errors_total", kind="shape") == 1


def test_values_that_are_no_numbers_are_counted(registry, shard):
    shard._shard.amax = float("nan")
    shard.forward_ids([5], 0)
    assert counted(registry, "poolhouse_engine_errors_total", kind="nonfinite") == 1


def test_everything_else_is_the_parts_own(shard):
    plain = FakeShard(0, 4, has_embedding=True)
    for each in (shard, plain):
        each.forward_ids([1, 2], 0)
        each.save(3)
        each.reset()
        each.load(3)
    assert (shard.lo, shard.hi, shard.width) == (0, 4, plain.width)
    answers = [each.top_of_ids([9], 2, 4).ids.tolist() for each in (shard, plain)]
    assert answers[0] == answers[1]


def test_what_rooms_share_counts_once():
    part, other = object(), object()

    class Held(FakeShard):
        holding = None

    shards = [Held(0, 1), Held(0, 1), Held(1, 2)]
    for shard, holding in zip(
        shards, (Holding(part, 100, 10), Holding(part, 100, 10), Holding(other, 7, 1)), strict=True
    ):
        shard.holding = holding
    assert memory_of(shards) == EngineMemory(107, 11)
    assert memory_of([]) == EngineMemory()


def test_a_closed_part_is_told(registry):
    closed = []
    shard = MeasuredShard(FakeShard(0, 1), NodeMetrics(registry), when_closed=closed.append)
    shard.close()
    assert closed == [shard]
