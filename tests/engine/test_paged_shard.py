"""Shards over pages: saved or not, alone or beside others, the bits are the same."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.engine import PartShelf, TorchShard, load_shard
from poolhouse_node.engine.memory import MemoryNeed, free_here
from poolhouse_node.engine.paged.pool import RoomShare, share_bytes
from poolhouse_node.shard import FakeShard, ShardError
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES

PAGE_ROWS, CONTEXT, LAYERS = 8, 96, 4
FRAMES = st.lists(st.integers(1, 7), min_size=1, max_size=6)
FEW = settings(max_examples=12, deadline=None)


@pytest.fixture(scope="module", params=["llama", "qwen35"])
def make(request, tmp_path_factory):
    """Opens rooms; they share one model part, whose pages are small."""
    shape = SMALL_SHAPES[request.param].but(layers=LAYERS)
    path = ModelMaker(shape).write_gguf(tmp_path_factory.mktemp("paged") / "model.gguf")
    shelf = PartShelf(page_rows=PAGE_ROWS)
    with ExitStack() as rooms:

        def open_room(of: PartShelf | None = None, **more) -> TorchShard:
            room = load_shard(
                path,
                (0, LAYERS),
                host=True,
                device="cpu",
                shelf=of or shelf,
                **{"context_size": CONTEXT, **more},
            )
            rooms.callback(room.close)
            return room

        open_room()  # keeps the weights for all tests of this module
        yield open_room


def is_hybrid(shard: TorchShard) -> bool:
    return shard._part.pool.recurrent is not None


def ids_of(seed: int, n: int) -> list[int]:
    return [(seed * 37 + 11 * step + step * step) % 96 for step in range(n)]


def feed(shard: TorchShard, frames: list[int], seed: int) -> torch.Tensor:
    """Run frames where the conversation ends; the logits of all columns."""
    out = []
    for number, n in enumerate(frames):
        ids = ids_of(seed + number, n)
        out.append(shard.logits(shard.run(shard.embed(ids), shard.position)))
    return torch.cat(out)


@FEW
@given(before=FRAMES, between=FRAMES, after=FRAMES, more=st.integers(0, 3))
def test_going_on_from_a_saved_state_has_the_bits_of_never_having_saved(
    make, before, between, after, more
):
    plain, saving = make(), make()
    wanted = [feed(plain, before, 1), feed(plain, after, 2)]
    got = [feed(saving, before, 1)]
    saving.save(3)
    for number in range(more):
        feed(saving, between, 3 + number)
        saving.save(4 + number)
        if number % 2:
            saving.reset()
    saving.load(3)
    got.append(feed(saving, after, 2))
    assert all(torch.equal(a, b) for a, b in zip(wanted, got, strict=True))
    saving.load(3)
    assert torch.equal(feed(saving, after, 2), wanted[1])
    plain.close()
    saving.close()


@FEW
@given(turns=st.lists(st.tuples(st.integers(0, 2), st.integers(1, 6)), min_size=2, max_size=12))
def test_rooms_in_turns_have_the_bits_of_rooms_alone(make, turns):
    rooms = [make() for _ in range(3)]
    alone = [make(PartShelf(page_rows=PAGE_ROWS)) for _ in range(3)]
    for number, (index, n) in enumerate(turns):
        got, wanted = (feed(each[index], [n], number) for each in (rooms, alone))
        assert torch.equal(got, wanted)
    for each in (*rooms, *alone):
        each.close()


@FEW
@given(before=FRAMES, columns=st.integers(1, 12), kept=st.integers(0, 11), after=FRAMES)
def test_rollback_goes_on_as_if_the_rest_had_never_been(make, before, columns, kept, after):
    """Columns of one frame and of another may differ in the last bits: not more."""
    kept = min(kept, columns - 1)
    plain, drafting = make(), make()
    feed(plain, before, 1)
    feed(drafting, before, 1)
    base, ids = plain.position, ids_of(9, columns)
    plain.run(plain.embed(ids[: kept + 1]), base)
    wanted = feed(plain, after, 2)
    drafting.run(drafting.embed(ids), base, snapshots=True)
    drafting.rollback(kept)
    assert drafting.position == base + kept + 1
    assert torch.allclose(feed(drafting, after, 2), wanted, atol=1e-4)
    plain.close()
    drafting.close()


@pytest.mark.parametrize("columns", [1, 5, 16])
def test_rollback_after_a_frame_with_snapshots(make, columns):
    """After every column, as if the frame had ended there."""
    shard = make()
    ids = ids_of(5, columns)
    for kept in range(columns):
        shard.reset()
        feed(shard, [3], 1)
        shard.run(shard.embed(ids), 3, snapshots=True)
        shard.rollback(kept)
        after = feed(shard, [2], 7)
        shard.reset()
        feed(shard, [3], 1)
        for token in ids[: kept + 1]:
            shard.run(shard.embed([token]), shard.position)
        assert torch.allclose(after, feed(shard, [2], 7), atol=1e-4)
    shard.close()


RUN = st.tuples(st.just("run"), st.integers(1, 5), st.booleans())
CONTROL = st.one_of(
    RUN,
    RUN,
    RUN,
    RUN,
    st.tuples(st.just("rollback"), st.integers(0, 4)),
    st.tuples(st.just("save"), st.integers(1, 4)),
    st.tuples(st.just("load"), st.integers(1, 4)),
    st.tuples(st.just("drop"), st.integers(1, 4)),
    st.tuples(st.just("drop_all")),
    st.tuples(st.just("reset")),
)


class Beside:
    """A real room and the fake one, given the same control words.

    The fake's answer to a column stands for everything that went before it; whenever it comes
    back to the same answer, so must the real one.
    """

    def __init__(self, shard: TorchShard) -> None:
        self.shard = shard
        self.fake = FakeShard(0, LAYERS, context_size=CONTEXT, has_embedding=True)
        self.position = 0
        self.seen: dict[bytes, torch.Tensor] = {}
        self.drafted: tuple[int, int] | None = None
        self.slots: dict[int, int] = {}

    def run(self, n: int, spec: bool) -> None:
        ids = ids_of(self.position % 3, n)
        if self.position + n > CONTEXT:
            self.refused(lambda each: each.run(each.embed(ids), self.position))
            return
        fake = self.fake.run(self.fake.embed(ids), self.position, snapshots=spec)
        real = self.shard.run(self.shard.embed(ids), self.position, snapshots=spec)
        for key, column in zip(fake, self.shard.logits(real), strict=True):
            known = self.seen.setdefault(key.tobytes(), column)
            assert torch.allclose(known, column, atol=1e-4)
        self.drafted = (self.position, n) if spec else None
        self.position += n

    def rollback(self, column: int) -> None:
        if self.drafted is None:
            return  # how long a snapshot outlives plain frames is the shard's own business
        base, columns = self.drafted
        if column >= columns:
            self.refused(lambda each: each.rollback(column))
            return
        for each in (self.fake, self.shard):
            each.rollback(column)
        self.drafted, self.position = None, base + column + 1

    def save(self, slot: int) -> None:
        for each in (self.fake, self.shard):
            each.save(slot)
        self.slots[slot] = self.position

    def load(self, slot: int) -> None:
        if slot not in self.slots:
            self.refused(lambda each: each.load(slot))
            return
        for each in (self.fake, self.shard):
            each.load(slot)
        self.position, self.drafted = self.slots[slot], None

    def drop(self, slot: int) -> None:
        for each in (self.fake, self.shard):
            each.drop([slot, 60_000])
        self.slots.pop(slot, None)

    def drop_all(self) -> None:
        for each in (self.fake, self.shard):
            each.drop_all()
        self.slots.clear()

    def reset(self) -> None:
        for each in (self.fake, self.shard):
            each.reset()
        self.position, self.drafted = 0, None

    def refused(self, call) -> None:
        for each in (self.fake, self.shard):
            with pytest.raises(ShardError):
                call(each)


@settings(max_examples=40, deadline=None)
@given(program=st.lists(CONTROL, min_size=15, max_size=40))
def test_control_words_do_what_they_do_to_the_fake(make, program):
    both = Beside(make())
    for word, *arguments in program:
        getattr(both, word)(*arguments)
        assert both.shard.position == both.position
    both.shard.close()


def test_a_save_copies_no_keys_and_values_and_what_follows_one_block(make):
    shard = make()
    feed(shard, [60], 1)
    pages = shard._part.pool.pages
    copied, held = pages.copied_bytes, pages.held_bytes
    shard.save(1)
    assert (pages.copied_bytes, pages.held_bytes) == (copied, held)
    feed(shard, [1], 2)
    assert pages.copied_bytes - copied <= pages.block_bytes
    copied = pages.copied_bytes
    feed(shard, [1, 1, 1], 3)
    assert pages.copied_bytes == copied
    shard.close()


def test_fifty_saved_states_of_one_conversation_take_what_they_differ_by(make):
    shard = make(PartShelf(page_rows=PAGE_ROWS), saved_states=50)
    ledger = shard._part.pool.ledger
    for slot in range(1, 51):
        feed(shard, [1], slot)
        shard.save(slot)
    used = ledger.size - 1 - ledger.free
    # 50 columns fill 7 blocks; each state needs a last one of its own unless it was full.
    assert used == 7 + sum(1 for length in range(1, 50) if length % PAGE_ROWS)
    for slot in range(1, 51):
        shard.load(slot)
        assert shard.position == slot
    shard.drop_all()
    shard.reset()
    assert ledger.free == ledger.size - 1
    shard.close()


def test_a_state_beyond_the_reserve_is_refused_and_the_others_stay(make):
    shard = make(saved_states=1)
    for slot in (1, 2):
        feed(shard, [50], slot)
        if slot == 2:
            with pytest.raises(ShardError, match="no memory reserved"):
                shard.save(2)
        else:
            shard.save(1)
        shard.reset()
    shard.load(1)
    assert shard.position == 50
    feed(shard, [40], 3)
    shard.save(1)
    shard.close()


def test_the_bits_do_not_depend_on_what_lay_in_memory(make):
    """Rows nobody wrote yet may hold anything, a NaN for one."""
    shard = make(PartShelf(page_rows=PAGE_ROWS))
    wanted = feed(shard, [9, 1, 4], 1)
    shard.reset()
    with torch.inference_mode():
        for layer in shard._part.pool.pages._layers:
            layer.fill_(torch.nan)
    assert torch.equal(feed(shard, [9, 1, 4], 1), wanted)
    shard.close()


@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("column", [0, 2])
def test_what_is_not_finite_is_told_and_gone_after_a_reset(make, poison, column):
    """Frames that hold any may not be sent, logits of them not be drawn from (generation, 5)."""
    shard = make()
    wanted = feed(shard, [5], 1)
    hidden = shard.embed(ids_of(2, 3)).clone()
    hidden[column, 7] = poison
    hidden = shard.run(hidden, shard.position)
    packed = shard.pack(hidden)
    assert not packed.sendable
    assert not packed.amax < float("inf")
    assert not shard.head(hidden, 2).finite
    shard.reset()
    assert torch.equal(feed(shard, [5], 1), wanted)
    shard.close()


def test_a_failed_frame_of_recurrent_layers_must_be_reset(make):
    shard = make()
    feed(shard, [4], 1)
    with pytest.raises(ShardError, match="engine failed"):
        shard.run(torch.zeros(1, 65), 4)
    if is_hybrid(shard):
        with pytest.raises(ShardError, match="failed halfway"):
            feed(shard, [1], 2)
        shard.reset()
    assert torch.equal(feed(shard, [1], 2), feed(make(), [1], 2)) == is_hybrid(shard)
    shard.close()


def test_recurrent_layers_cannot_go_back_by_position(make):
    shard = make()
    feed(shard, [4], 1)
    if is_hybrid(shard):
        with pytest.raises(ShardError, match="cannot go back from position 4 to 2"):
            shard.run(shard.embed([1]), 2)
        with pytest.raises(ShardError, match="at most 16 columns"):
            shard.run(shard.embed([1] * 17), 4, snapshots=True)
    else:
        shard.run(shard.embed([1]), 2)
        assert shard.position == 3
    shard.close()


class TestSharing:
    def test_weights_are_held_once_and_freed_with_the_last_room(self, make):
        shelf = PartShelf(page_rows=PAGE_ROWS)
        read = []
        first = make(shelf, progress=read.append)
        second = make(shelf, progress=read.append)
        assert read[-2:] == [1.0, 1.0]
        assert second._part is first._part
        part = first._part
        first.close()
        assert first.held_bytes == 0
        assert not part.is_closed
        feed(second, [5], 1)
        second.close()
        assert part.is_closed
        assert part.held_bytes == 0
        third = make(shelf)
        assert third._part is not part
        third.close()

    def test_rooms_in_threads_of_their_own_take_turns(self, make):
        rooms, alone = [make() for _ in range(2)], [make() for _ in range(2)]
        frames = [3, 1, 5, 1, 1, 7, 2] * 3
        wanted = [feed(shard, frames, seed) for seed, shard in enumerate(alone)]
        with ThreadPoolExecutor(2) as threads:
            got = list(threads.map(feed, rooms, [frames] * 2, range(2)))
        assert all(torch.equal(a, b) for a, b in zip(got, wanted, strict=True))
        for each in (*rooms, *alone):
            each.close()

    def test_other_contexts_have_parts_of_their_own(self, make):
        shelf = PartShelf()
        rooms = [make(shelf, context_size=size) for size in (32, 64)]
        assert rooms[0]._part is not rooms[1]._part
        for room in rooms:
            room.close()

    def test_closing_twice_is_closing_once(self, make):
        shelf = PartShelf()
        first, second = make(shelf), make(shelf)
        first.close()
        first.close()
        feed(second, [3], 1)
        second.close()


class TestMemory:
    def test_too_little_is_told_before_anything_is_read(self, make):
        read = []
        with pytest.raises(ShardError, match=r"need 0\.00 GB of memory .* 0\.00 GB are free"):
            make(PartShelf(available=lambda _: 1000), progress=read.append)
        assert read == []

    def test_what_is_left_bounds_the_saved_states(self, make):
        part = make()._part
        shape, weights = part.state_shape, part.model.held_bytes + part.head.held_bytes
        one = share_bytes(shape, RoomShare.of(shape, 0, PAGE_ROWS), PAGE_ROWS)
        more = share_bytes(shape, RoomShare.of(shape, 1, PAGE_ROWS), PAGE_ROWS) - one
        need = MemoryNeed(weights, shape, PAGE_ROWS)
        for left, wanted in ((0, 0), (more - 1, 0), (2 * more, 2), (100 * more, 8)):
            assert need.saved_states(8, weights + one + left) == wanted
        assert need.saved_states(8, None) == 8
        with pytest.raises(ShardError, match=f"a conversation of {CONTEXT} tokens"):
            need.saved_states(0, weights + one - 1)

    def test_a_second_room_needs_no_memory_for_weights(self, make):
        part = make()._part
        free = [10**9]
        shelf = PartShelf(available=lambda _: free[0], page_rows=PAGE_ROWS)
        first = make(shelf)
        share = RoomShare.of(part.state_shape, 1, PAGE_ROWS)
        free[0] = share_bytes(part.state_shape, share, PAGE_ROWS)
        second = make(shelf, saved_states=8)
        assert second.saved_states == 1
        free[0] = 10
        with pytest.raises(ShardError, match=r"\(0\.00 for weights"):
            make(shelf)
        first.close()
        second.close()

    def test_free_memory_is_the_containers_if_that_is_less(self, tmp_path):
        meminfo = tmp_path / "meminfo"
        meminfo.write_text("MemTotal: 9 kB\nMemAvailable:    5000 kB\n")
        assert free_here(meminfo, (tmp_path,)) == 5000 * 1024
        for name, text in (
            ("memory.max", "4000000"),
            ("memory.current", "3000000"),
            ("memory.stat", "anon 5\ninactive_file 700000\nactive_file 300000\n"),
        ):
            (tmp_path / name).write_text(text)
        assert free_here(meminfo, (tmp_path,)) == 2_000_000
        (tmp_path / "memory.max").write_text("max")
        assert free_here(meminfo, (tmp_path,)) == 5000 * 1024
        assert free_here(tmp_path / "none", (tmp_path,)) is None
