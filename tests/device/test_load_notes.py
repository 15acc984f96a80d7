"""A device's note that it loads, and what it lends after ``ai-share``."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.cli.load_notebook import LoadNotebook
from poolhouse_node.cli.state import RoomState
from poolhouse_node.device.load_notes import NOTE_AGAIN_S, LoadNotes, lower_share
from poolhouse_node.device.tasks import Tasks
from poolhouse_node.wire.messages.loading import ShareLimit
from tests.support.virtual_time import run_virtual

META = {"webgpu": True, "contribGB": 2.0, "ua": "Device"}


class Clock:
    """Time that a test moves."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def notebook(tmp_path, clock):
    return LoadNotebook(RoomState(tmp_path / "4TKG9P"), "otter", clock)


def test_a_death_is_told_until_a_host_has_heard_it(notebook, clock):
    notebook.write()
    clock.now += 30
    assert LoadNotes(notebook).died.ago == 30.0  # killed at the gate, it says so again
    notes = LoadNotes(notebook)
    assert notes.died.loading
    notes.told()
    assert notes.died is None
    assert LoadNotes(notebook).died is None


def test_a_load_that_goes_on_for_long_is_noted_again(notebook, clock):
    async def main():
        tasks = Tasks()
        notes = LoadNotes(notebook)
        notes.loading(tasks, now=True)
        clock.now += 700
        before = notebook.death()
        await asyncio.sleep(NOTE_AGAIN_S + 1)
        after = notebook.death()
        notes.loading(tasks, now=False)
        ended = notebook.death()
        await asyncio.sleep(NOTE_AGAIN_S + 1)
        await tasks.close()
        return before, after, ended, notebook.death()

    before, after, ended, last = run_virtual(main())
    assert before is None  # after ten minutes a note is too old
    assert after.ago == 0.0
    assert ended is None
    assert last is None


def test_a_disk_that_takes_no_note_stops_nobody(tmp_path, clock):
    (tmp_path / "file").write_text("")
    notebook = LoadNotebook(RoomState(tmp_path / "file" / "4TKG9P"), "otter", clock)
    notebook.write()
    notebook.clear()
    assert notebook.death() is None


def test_only_the_owner_reads_the_note(notebook):
    notebook.write()
    (note,) = notebook.state.folder.iterdir()
    assert note.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(("gb", "lent_gb"), [(1.0, 1.0), (0.02, 0.1), (0.0, 0.1), (64.0, 2.0)])
def test_a_lowered_share(gb, lent_gb):
    assert lower_share(META, ShareLimit(gb=gb)) == META | {"contribGB": lent_gb}


def test_a_dropped_device_lends_nothing_and_asks():
    assert lower_share(META, ShareLimit(drop=1)) == META | {"webgpu": False}


@given(gb=st.none() | st.floats(0, 1 << 20), drop=st.booleans(), lent=st.floats(0.1, 64))
def test_a_host_cannot_make_a_device_lend_more(gb, drop, lent):
    assert lower_share({"contribGB": lent}, ShareLimit(gb=gb, drop=drop))["contribGB"] <= lent
