"""The record on disk follows the room, without the loop waiting for the disk."""

import asyncio
import threading
from dataclasses import dataclass, field

import pytest

from poolhouse_node.cli.keeping import RecordKeeper
from poolhouse_node.cli.state import RoomState
from poolhouse_node.room.record import RoomMemory
from tests.support.kept_room import CODE, choices


@dataclass
class SlowDisk:
    """A room's state whose writes wait until they may go on."""

    may_write: threading.Event = field(default_factory=threading.Event)
    writes: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    answers: list[int] = field(default_factory=list)
    saved_at: list[float] = field(default_factory=list)
    error: Exception | None = None
    deleted: bool = False

    def save_record(self, record) -> None:
        self.writes.release()
        self.may_write.wait(10)
        if self.error:
            raise self.error
        self.answers.append(record.memory.answers)
        self.saved_at.append(record.saved_at)

    def delete_record(self) -> None:
        self.deleted = True

    def forget(self) -> None:
        self.deleted = True

    async def until_writing(self) -> None:
        await asyncio.to_thread(self.writes.acquire, timeout=10)


@pytest.fixture
def disk():
    return SlowDisk()


@pytest.fixture
def state(tmp_path):
    return RoomState.of(CODE, {"POOLHOUSE_STATE": str(tmp_path)})


def keep(state, said=None, **other) -> RecordKeeper:
    say = (lambda line: None) if said is None else said.append
    return RecordKeeper(state, choices(), RoomMemory(answers=1), say, **other)


async def test_the_record_is_there_from_the_start_and_new_at_the_end(state):
    async with keep(state, now=lambda: 5.0) as keeper:
        assert state.load_record().memory.answers == 1
        assert state.load_record().saved_at == 5.0
        keeper.save(RoomMemory(answers=2))
    assert state.load_record().memory.answers == 2


async def test_only_the_newest_is_written_when_the_disk_is_slow(disk):
    disk.may_write.set()
    async with keep(disk) as keeper:
        await disk.until_writing()
        disk.may_write.clear()
        keeper.save(RoomMemory(answers=2))
        await disk.until_writing()  # the loop is free meanwhile
        for answers in range(3, 10):
            keeper.save(RoomMemory(answers=answers))
        disk.may_write.set()
    assert disk.answers[:3] == [1, 2, 9]
    assert set(disk.answers[3:]) <= {9}


async def test_a_quiet_room_stays_fresh(disk):
    disk.may_write.set()
    clock = iter(range(100))
    async with keep(disk, now=lambda: float(next(clock)), refresh_s=0.0):
        for _ in range(3):
            await disk.until_writing()
    assert disk.saved_at[:3] == [0.0, 1.0, 2.0]
    assert set(disk.answers) == {1}


async def test_a_room_that_is_over_leaves_no_record(state):
    async with keep(state) as keeper:
        keeper.save(RoomMemory(answers=2))
        keeper.room_is_over()
    assert state.load_record() is None
    assert state.folder.exists()


@pytest.mark.parametrize("is_over", [True, False])
async def test_a_passing_room_leaves_nothing_when_it_is_over(state, is_over):
    async with keep(state, is_passing=True) as keeper:
        if is_over:
            keeper.room_is_over()
    assert state.folder.exists() is not is_over


async def test_nothing_is_deleted_while_it_is_being_written(disk):
    disk.may_write.set()
    async with keep(disk) as keeper:
        await disk.until_writing()
        disk.may_write.clear()
        keeper.save(RoomMemory(answers=2))
        await disk.until_writing()
        keeper.room_is_over()
        assert not disk.deleted
        disk.may_write.set()
    assert disk.answers == [1, 2]
    assert disk.deleted


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), UnicodeEncodeError("utf-8", "\ud800", 0, 1, "")],
)
async def test_a_disk_that_takes_nothing_is_said_once(disk, error):
    disk.may_write.set()
    disk.error, said = error, []
    async with keep(disk, said) as keeper:
        keeper.save(RoomMemory(answers=2))
    assert len(said) == 1
    assert "could not be resumed" in said[0]


async def test_a_cancelled_room_is_kept(state):
    entered = asyncio.Event()

    async def host() -> None:
        async with keep(state) as keeper:
            keeper.save(RoomMemory(answers=7))
            entered.set()
            await asyncio.Event().wait()

    task = asyncio.ensure_future(host())
    await entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert state.load_record().memory.answers == 7


async def test_a_record_that_cannot_be_deleted_is_said(state):
    (state.make_folder() / "room.json").mkdir()
    said = []
    async with keep(state, said) as keeper:
        keeper.room_is_over()
    assert "could not be resumed" in said[0]
    assert "could not be deleted" in said[1]
