"""Rooms over one pool against plain lists: whatever happens, each sees its own columns only."""

import random
from collections import Counter
from dataclasses import dataclass, field

import pytest
import torch
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from poolhouse_node.engine.paged.ledger import TRASH_BLOCK
from poolhouse_node.engine.paged.pages import page_spans
from poolhouse_node.engine.paged.passes import PagedPass
from poolhouse_node.engine.paged.pool import StatePool
from poolhouse_node.engine.paged.sequence import RoomState
from poolhouse_node.engine.state import AttentionShape, RecurrentShape, StateShape
from poolhouse_node.shard import ShardError

PAGE_ROWS, CONTEXT, SAVED = 4, 26, 3
ATTENTION = AttentionShape(layers=2, kv_heads=2, head_size=2)
RECURRENT = RecurrentShape(layers=2, heads=1, key_size=1, value_size=1, channels=1, taps=2)
KINDS = {
    "attention": StateShape(CONTEXT, attention=ATTENTION),
    "recurrent": StateShape(CONTEXT, recurrent=RECURRENT),
    "both": StateShape(CONTEXT, attention=ATTENTION, recurrent=RECURRENT),
}
CASES = {
    "attention": ("attention", True),
    "recurrent": ("recurrent", True),
    "both": ("both", True),
    "both, rows first": ("both", False),
}
SLOTS = st.integers(1, 5)


@dataclass
class Room:
    """A room and what it must hold: a number per column."""

    state: RoomState
    columns: list[int] = field(default_factory=list)
    saved: dict[int, list[int]] = field(default_factory=dict)
    frame: tuple[int, int] | None = None
    """Position and usable columns of the last frame with snapshots."""


def folded(columns: list[int]) -> float:
    """What the recurrent state must be: it depends on the order. Exact in float32."""
    state = 1
    for column in columns:
        state = (state * 31 + column) % 65521
    return float(state)


class PagedRooms(RuleBasedStateMachine):
    shape = KINDS["both"]
    heads_first = True

    def __init__(self) -> None:
        super().__init__()
        device = torch.device("cpu")
        self.pool = StatePool(self.shape, device, page_rows=PAGE_ROWS, heads_first=self.heads_first)
        self.rooms = [Room(RoomState(self.pool, self.shape, SAVED)) for _ in range(2)]
        self.counter = 0
        self.saves_copied = 0

    rooms_index = st.integers(0, 1)

    @rule(index=rooms_index, n=st.integers(1, 9), spec=st.booleans(), back=st.integers(0, 6))
    def run(self, index: int, n: int, spec: bool, back: int) -> None:
        room = self.rooms[index]
        position = len(room.columns)
        if self.pool.recurrent is None:
            position = max(0, position - back)
        n = min(n, CONTEXT - position)
        if n < 1:
            return
        new = list(range(self.counter, self.counter + n))
        self.counter += n
        with room.state.frame(position, n, snapshots=spec):
            self._compute(room, position, new, spec=spec)
        if spec:
            room.frame = (position, n)
        elif room.frame and position < sum(room.frame):
            room.frame = None
        room.columns[position:] = new

    def _compute(self, room: Room, position: int, new: list[int], *, spec: bool) -> None:
        this_pass = PagedPass(room.state, position, len(new), keeps_snapshots=spec)
        if self.pool.pages is not None:
            first, last = position // PAGE_ROWS, (position + len(new) - 1) // PAGE_ROWS
            for block in room.state.blocks[first : last + 1]:
                assert self.pool.ledger.references(block) == 1
            values = torch.tensor(new, dtype=torch.float32).view(-1, 1, 1).expand(-1, 2, 2)
            for layer in range(ATTENTION.layers):
                this_pass.attend(layer, values, values + layer, values + 0.5)
        if self.pool.recurrent is not None:
            for layer in range(RECURRENT.layers):
                for column in range(len(new)):
                    state = this_pass.recurrent(layer)
                    after = folded(room.columns + new[: column + 1])
                    state.memory.fill_(after)
                    state.window.fill_(after)
                    if spec and column < len(new) - 1:
                        kept = this_pass.snapshot(layer, column)
                        kept.memory.fill_(after)
                        kept.window.fill_(after)

    @rule(index=rooms_index, n=st.integers(1, 9))
    def fail_halfway(self, index: int, n: int) -> None:
        room = self.rooms[index]
        position = len(room.columns)
        n = min(n, CONTEXT - position)
        if n < 1:
            return

        def fail() -> None:
            with room.state.frame(position, n, snapshots=False):
                if self.pool.recurrent is not None:
                    PagedPass(room.state, position, n, keeps_snapshots=False).recurrent(
                        0
                    ).memory.fill_(-1)
                raise ShardError("no luck")

        with pytest.raises(ShardError, match="no luck"):
            fail()
        if self.pool.recurrent is not None:
            for refused in (fail, lambda: room.state.save(1)):
                with pytest.raises(ShardError, match="failed halfway"):
                    refused()
            self.reset(index)

    @precondition(lambda self: any(room.frame for room in self.rooms))
    @rule(index=rooms_index, column=st.integers(0, 8))
    def rollback(self, index: int, column: int) -> None:
        room = self.rooms[index]
        position, columns = room.frame or (0, 0)
        if column >= columns:
            with pytest.raises(ShardError, match=f"no snapshot after column {column}"):
                room.state.rollback(column)
            return
        if column == columns - 1 and len(room.columns) != position + columns:
            return  # the state after the last column is gone; only attention can go back to it
        room.state.rollback(column)
        room.columns = room.columns[: position + column + 1]
        room.frame = (position, column + 1)

    @rule(index=rooms_index, slot=SLOTS)
    def save(self, index: int, slot: int) -> None:
        room = self.rooms[index]
        copied = self.pool.pages.copied_bytes if self.pool.pages else 0
        try:
            room.state.save(slot)
        except ShardError as error:
            assert "no memory reserved" in str(error)  # noqa: PT017  # allowed, not wanted
            assert len({*room.saved, slot}) > SAVED
        else:
            room.saved[slot] = list(room.columns)
        assert copied == (self.pool.pages.copied_bytes if self.pool.pages else 0)

    @rule(index=rooms_index, slot=SLOTS)
    def load(self, index: int, slot: int) -> None:
        room = self.rooms[index]
        if slot not in room.saved:
            with pytest.raises(ShardError, match=f"no saved state {slot}"):
                room.state.load(slot)
            return
        room.state.load(slot)
        room.columns, room.frame = list(room.saved[slot]), None

    @rule(index=rooms_index, slots=st.lists(SLOTS, max_size=2))
    def drop(self, index: int, slots: list[int]) -> None:
        self.rooms[index].state.drop(slots)
        for slot in slots:
            self.rooms[index].saved.pop(slot, None)

    @rule(index=rooms_index)
    def drop_all(self, index: int) -> None:
        self.rooms[index].state.drop_all()
        self.rooms[index].saved.clear()

    @rule(index=rooms_index)
    def reset(self, index: int) -> None:
        self.rooms[index].state.reset()
        self.rooms[index].columns, self.rooms[index].frame = [], None

    @rule(index=rooms_index)
    def leave_and_come_back(self, index: int) -> None:
        self.rooms[index].state.close()
        self.rooms[index] = Room(RoomState(self.pool, self.shape, SAVED))

    @invariant()
    def every_reference_is_somebodys(self) -> None:
        held: Counter[int] = Counter()
        for room in self.rooms:
            held.update(room.state.blocks)
            for saved in room.state.saved.values():
                held.update(saved.blocks)
        ledger = self.pool.ledger
        assert held[TRASH_BLOCK] == 0
        for block in range(1, ledger.size):
            assert ledger.references(block) == held[block]
            assert ledger.is_free(block) == (held[block] == 0)
        assert ledger.size <= max(self.pool.block_limit, 2)

    @invariant()
    def recurrent_slots_have_one_holder_each(self) -> None:
        if self.pool.recurrent is None:
            return
        held = []
        for room in self.rooms:
            held += [room.state.recurrent_slot, *room.state.snapshot_slots]
            held += [saved.recurrent_slot for saved in room.state.saved.values()]
        assert len(held) == len(set(held)) == self.pool.recurrent.held
        assert 0 not in held

    @invariant()
    def every_state_holds_its_columns(self) -> None:
        for room in self.rooms:
            assert room.state.length == len(room.columns)
            self._check(room.state.blocks, room.columns, room.state.recurrent_slot)
            assert room.state.saved.keys() == room.saved.keys()
            for slot, columns in room.saved.items():
                saved = room.state.saved[slot]
                assert saved.length == len(columns)
                self._check(saved.blocks, columns, saved.recurrent_slot)

    def _check(self, blocks, columns: list[int], recurrent_slot: int | None) -> None:
        if self.pool.pages is not None and columns:
            spans = page_spans(blocks, 0, len(columns), PAGE_ROWS)
            for layer in range(ATTENTION.layers):
                keys, values = self.pool.pages.read(layer, spans)
                assert keys.shape == (2, len(columns), 2)
                wanted = torch.tensor(columns).view(1, -1, 1)
                assert (keys == wanted + layer).all()
                assert (values == wanted + 0.5).all()
        if self.pool.recurrent is not None:
            wanted = folded(columns) if columns else 0
            for layer in range(RECURRENT.layers):
                state = self.pool.recurrent.layer(recurrent_slot, layer)
                assert (state.memory == wanted).all()
                assert (state.window == wanted).all()

    def teardown(self) -> None:
        for room in self.rooms:
            room.state.close()
        assert self.pool.ledger.free == self.pool.ledger.size - 1
        assert self.pool.block_limit == 1


@pytest.mark.parametrize(("kind", "heads_first"), CASES.values(), ids=CASES)
def test_rooms_hold_their_columns_whatever_happens(kind, heads_first):
    machine = type("PagedRooms", (PagedRooms,), {"shape": KINDS[kind], "heads_first": heads_first})
    # `settings` inside: hypothesis finds a machine's by its TestCase class only.
    machine.TestCase.settings = settings(max_examples=20, stateful_step_count=30, deadline=None)
    machine.TestCase("runTest").runTest()


@pytest.mark.parametrize(("kind", "heads_first"), CASES.values(), ids=CASES)
def test_long_walks(kind, heads_first):
    """The same machine for hundreds of steps at a stretch, where pools are full and torn."""
    walk = random.Random(kind)
    for _ in range(2):
        machine = type("Walk", (PagedRooms,), {"shape": KINDS[kind], "heads_first": heads_first})()
        for _ in range(150):
            take_a_step(machine, walk)
            machine.every_reference_is_somebodys()
            machine.recurrent_slots_have_one_holder_each()
            machine.every_state_holds_its_columns()
        machine.teardown()


def take_a_step(machine: PagedRooms, walk: random.Random) -> None:
    index, slot, n = walk.randrange(2), walk.randint(1, 5), walk.randint(1, 9)
    spec, back = walk.random() < 0.3, walk.choice([0, 0, 0, 3])
    steps = {
        lambda: machine.run(index, n, spec, back): 40,
        lambda: machine.rollback(index, n - 1): 10,
        lambda: machine.save(index, slot): 15,
        lambda: machine.load(index, slot): 15,
        lambda: machine.drop(index, [slot]): 6,
        lambda: machine.reset(index): 6,
        lambda: machine.fail_halfway(index, n): 3,
        lambda: machine.drop_all(index): 1,
        lambda: machine.leave_and_come_back(index): 1,
    }
    walk.choices(list(steps), list(steps.values()))[0]()


class TestPlaces:
    """Where blocks lie: side by side for as long as can be, also after saves and loads."""

    def room(self, saved_states: int = 4) -> RoomState:
        shape = StateShape(40, attention=ATTENTION)
        pool = StatePool(shape, torch.device("cpu"), page_rows=PAGE_ROWS)
        return RoomState(pool, shape, saved_states)

    def run(self, room: RoomState, n: int, *, at: int | None = None) -> None:
        with room.frame(room.length if at is None else at, n, snapshots=False):
            pass

    def test_a_conversation_is_one_run(self):
        room = self.room()
        for _ in range(20):
            self.run(room, 2)
        assert room.blocks == list(range(1, 11))

    def test_the_live_conversation_keeps_its_place_after_a_save(self):
        room = self.room()
        for slot in range(1, 5):
            self.run(room, 6)
            room.save(slot)
        self.run(room, 1)
        assert room.blocks == list(range(1, 8))
        assert room.pool.ledger.references(room.blocks[-1]) == 1

    def test_a_loaded_conversation_is_mended_when_the_old_place_is_free(self):
        room = self.room()
        self.run(room, 6)
        room.save(1)
        self.run(room, 9)
        assert room.saved[1].blocks[1] != 2
        room.load(1)
        self.run(room, 3)
        assert room.blocks == [1, 2, 3]

    def test_blocks_of_saved_states_make_way(self):
        room = self.room()
        self.run(room, 6)
        room.save(1)
        self.run(room, 1)
        in_the_way = room.saved[1].blocks[1]
        while room.length < 4 * in_the_way:
            self.run(room, 1)
        assert room.blocks == list(range(1, len(room.blocks) + 1))
        assert in_the_way in room.blocks

    def test_two_conversations_leave_each_other_room(self):
        room = self.room()
        pool = room.pool
        other = RoomState(pool, StateShape(40, attention=ATTENTION), 4)
        self.run(room, 20)
        self.run(other, 1)
        self.run(room, 4)
        self.run(other, 7)
        assert room.blocks == [1, 2, 3, 4, 5, 6]
        assert other.blocks == [other.blocks[0], other.blocks[0] + 1]


def test_a_conversation_that_was_never_saved_costs_no_copy():
    places = TestPlaces()
    room = places.room()
    for _ in range(30):
        places.run(room, 1)
    assert room.pool.pages.copied_bytes == 0
