"""Rooms of one process on its shelf of model parts, with one pledge for all of them."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from poolhouse_node.engine import LoadCancelled, PartShelf, load_shard
from poolhouse_node.room.lending import Lending, Taken
from poolhouse_node.room.pledge import GIB
from poolhouse_node.shard import BeyondPledge
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES

PAGE_ROWS = 16


class Budget:
    """A room's view of one pledge, as a process with several rooms has it."""

    def __init__(self, lending: Lending, room: str) -> None:
        self.lending, self.room = lending, room

    def left_bytes(self) -> int:
        return self.lending.left_bytes

    def take(self, part, weights_bytes, state_bytes) -> None:
        self.lending.take(self.room, Taken(part, weights_bytes, state_bytes))

    def give_back(self) -> None:
        self.lending.give_back(self.room)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    return {
        name: ModelMaker(SMALL_SHAPES[name]).write_gguf(folder / f"{name}.gguf")
        for name in ("llama", "qwen35")
    }


@pytest.fixture
def device(models):
    """Opens rooms; closes what a test left open."""
    shelf, lending, opened = PartShelf(page_rows=PAGE_ROWS), Lending(GIB), []

    def open_room(room, layers=(0, 4), model="llama", **more):
        shard = load_shard(
            models[model],
            layers,
            context_size=64,
            host=False,
            device="cpu",
            shelf=shelf,
            budget=Budget(lending, room),
            **{"saved_states": 2, **more},
        )
        opened.append(shard)
        return shard

    open_room.lending, open_room.shelf = lending, shelf
    yield open_room
    for shard in opened:
        shard.close()
    assert lending.left_bytes == lending.pledge_bytes
    assert not shelf._parts


def taken(device, room) -> Taken:
    return device.lending._taken[room]


def test_two_rooms_dealt_the_same_part_hold_its_weights_once(device):
    first, second = device("A"), device("B")
    assert second._part is first._part
    both = device.lending.pledge_bytes - device.lending.left_bytes
    one = taken(device, "A")
    assert both == one.weights_bytes + 2 * one.state_bytes
    model = first._part.model
    angles_bytes = model.blocks[0].mixer.rope.held_bytes  # made, not read
    assert one.weights_bytes == model.held_bytes - angles_bytes


def test_the_weights_count_until_the_last_room_closes(device):
    first, second = device("A"), device("B")
    weights_bytes = taken(device, "A").weights_bytes
    first.close()
    state_bytes = taken(device, "B").state_bytes
    assert device.lending.pledge_bytes - device.lending.left_bytes == weights_bytes + state_bytes
    assert not second._part.is_closed


@pytest.mark.parametrize(
    ("layers", "model"), [((4, 8), "llama"), ((0, 2), "llama"), ((0, 4), "qwen35")]
)
def test_other_parts_and_models_count_each(device, layers, model):
    device("A")
    device("B", layers, model)
    a, b = taken(device, "A"), taken(device, "B")
    used = device.lending.pledge_bytes - device.lending.left_bytes
    assert used == a.weights_bytes + a.state_bytes + b.weights_bytes + b.state_bytes


def test_a_second_deal_beyond_the_pledge_is_refused_before_anything_is_read(device):
    device("A")
    used = device.lending.pledge_bytes - device.lending.left_bytes
    device.lending.pledge_bytes = used + 1000
    read = []
    sentence = r"^These layers need \d\.\d\d GB .*; 0\.00 GB are left of what this device lends\.$"
    with pytest.raises(BeyondPledge, match=sentence) as refused:
        device("B", (4, 8), progress=read.append)
    assert read == []
    one = taken(device, "A")
    assert one.weights_bytes < refused.value.needed_bytes < one.weights_bytes + one.state_bytes
    assert device.lending.left_bytes == 1000


def test_a_second_room_on_the_same_part_needs_memory_for_its_state_only(device):
    device("A", saved_states=0)
    state_bytes = taken(device, "A").state_bytes
    used = device.lending.pledge_bytes - device.lending.left_bytes
    device.lending.pledge_bytes = used + state_bytes
    second = device("B", saved_states=0)
    assert device.lending.left_bytes == 0
    assert second.saved_states == 0


def test_with_less_left_fewer_saved_states_are_reserved(device):
    first = device("A", saved_states=8)
    assert first.saved_states == 8
    used = device.lending.pledge_bytes - device.lending.left_bytes
    device.lending.pledge_bytes = used + taken(device, "A").state_bytes // 2
    second = device("B", saved_states=8)
    assert 0 < second.saved_states < 8
    assert device.lending.left_bytes >= 0


def test_a_load_that_fails_gives_back_what_it_took(device):
    with pytest.raises(LoadCancelled):
        device("A", cancelled=lambda: True)
    assert device.lending.left_bytes == device.lending.pledge_bytes
    assert device("A").saved_states == 2


class TestWhileAnotherLoads:
    @pytest.fixture
    def slow(self, device):
        """A load of room C that stands still until it is told to go on."""
        begun, go_on = threading.Event(), threading.Event()

        def progress(share: float) -> None:
            begun.set()
            assert go_on.wait(10)

        with ThreadPoolExecutor(1) as thread:
            loading = thread.submit(device, "C", (4, 8), progress=progress)
            assert begun.wait(10)
            yield go_on
            go_on.set()
            loading.result()

    @pytest.fixture
    def room(self, device):
        return device("A")

    def test_a_room_computes_and_closes(self, device, room, slow):
        """Its thread is that of all rooms: it must not wait for a load."""
        hidden = room.unpack(np.zeros(64, "<f2").tobytes(), 1)
        assert len(room.run(hidden, 0)) == 1
        room.close()
        assert room._part.is_closed

    def test_another_load_waits_and_can_be_cancelled(self, device, room, slow):
        with pytest.raises(LoadCancelled):
            device("B", cancelled=lambda: True)

    def test_another_load_is_done_after_it(self, device, room, slow):
        with ThreadPoolExecutor(1) as thread:
            waiting = thread.submit(device, "B")
            slow.set()
            assert waiting.result(10)._part is room._part

    def test_another_load_says_that_it_waits_and_moves_meanwhile(self, device, slow):
        waits, shown = threading.Event(), []

        def progress(share: float) -> None:
            shown.append(share)
            slow.set()

        with ThreadPoolExecutor(1) as thread:
            loading = thread.submit(device, "B", (0, 2), progress=progress, waits=waits.set)
            assert waits.wait(10)
            loading.result(10)
        assert 0 < shown[0] < 0.5
        assert shown == sorted(shown)
        assert shown[-1] == 1.0


def test_what_one_room_computes_is_not_changed_by_another_on_its_part(device):
    random = np.random.default_rng(3)
    frames = [random.standard_normal((n, 64)).astype("<f2").tobytes() for n in (3, 1, 7, 1, 2)]
    others = [random.standard_normal((n, 64)).astype("<f2").tobytes() for n in (2, 5, 1, 1, 6)]

    def feed(shard, frame, at):
        columns = len(frame) // 128
        return shard.pack(shard.run(shard.unpack(frame, columns), at)).data, at + columns

    alone, at, wanted = device("A"), 0, []
    for frame in frames:
        data, at = feed(alone, frame, at)
        wanted.append(data)
    alone.close()
    first, second, got, at, other_at = device("A"), device("B"), [], 0, 0
    for frame, other in zip(frames, others, strict=True):
        data, at = feed(first, frame, at)
        got.append(data)
        _, other_at = feed(second, other, other_at)
    assert got == wanted
