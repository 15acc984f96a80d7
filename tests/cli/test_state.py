"""What this machine keeps of rooms, and what is left of it when a process is killed."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.room import forget_room
from poolhouse_node.cli.state import RoomState, recorded_rooms, rooms_here
from poolhouse_node.room.gate import GateState
from poolhouse_node.room.record import RoomMemory, RoomRecord
from tests.support.kept_room import CODE, kept

GATE = GateState(asks=True, key="k" * 22, mesh_key="m" * 43, passes={})


@pytest.fixture
def environment(tmp_path):
    return {"POOLHOUSE_STATE": str(tmp_path)}


@pytest.fixture
def state(environment):
    return RoomState.of(CODE, environment)


def mode(path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# ---- the record ---------------------------------------------------------------------------------


def test_a_record_is_found_again_and_nobody_else_can_read_it(state):
    record = kept(memory=RoomMemory(answers=3))
    state.save_record(record)
    assert state.load_record() == record
    assert mode(state.folder / "room.json") == 0o600
    assert mode(state.folder) == mode(state.folder.parent) == 0o700


def test_without_a_record_there_is_none(state):
    assert state.load_record() is None
    state.delete_record()


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"version":1}', b"\xff\xfe"])
def test_a_broken_record_is_none(state, content):
    (state.make_folder() / "room.json").write_bytes(content)
    assert state.load_record() is None


def test_a_record_in_another_rooms_folder_is_none(state):
    state.save_record(kept(code="ABCDEF"))
    assert state.load_record() is None


def test_a_room_that_is_over_keeps_its_gate(state):
    state.save_record(kept())
    state.save_gate(GATE)
    state.delete_record()
    assert state.load_record() is None
    assert state.load_gate()["key"] == GATE.key


def test_forgetting_leaves_nothing(state):
    state.save_record(kept())
    state.save_gate(GATE)
    assert state.forget()
    assert not state.folder.exists()
    assert not state.forget()


def test_records_are_listed_newest_first(environment):
    for saved_at, code in ((2.0, "ABCDEF"), (3.0, "GHJKMN"), (1.0, "PQRS")):
        RoomState.of(code, environment).save_record(kept(saved_at, code=code))
    broken = RoomState.of("TTTTTT", environment).make_folder() / "room.json"
    broken.write_bytes(b"{")
    found = [record.options.code for _, record in recorded_rooms(environment)]
    assert found == ["GHJKMN", "ABCDEF", "PQRS"]


def test_no_folder_means_no_records(environment):
    assert recorded_rooms(environment) == []


SAVE_FOR_EVER = """
import sys
from pathlib import Path
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.room import forget_room
from poolhouse_node.cli.state import RoomState
from poolhouse_node.room.record import RecordedReply, RoomMemory
from tests.support.kept_room import CODE, kept
state = RoomState.of(CODE, {"POOLHOUSE_STATE": sys.argv[1]})
with state.lock():
    for number in range(1, 1 << 40):
        said = [RecordedReply(name="a", text="x" * number, reply="", stats="", mid=number)] * 20
        state.save_record(kept(memory=RoomMemory(answers=number, transcript=said)))
        print(number, flush=True)
"""


def saved_before_kill(folder, lines: int) -> int:
    """Kill -9 a process that saves all the time, somewhere after ``lines`` records."""
    process = subprocess.Popen(
        [sys.executable, "-c", SAVE_FOR_EVER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    with process:
        last = [int(process.stdout.readline()) for _ in range(lines)][-1]
        os.kill(process.pid, signal.SIGKILL)
        return max([last, *map(int, process.stdout.read().split())])


@pytest.mark.slow
@pytest.mark.timeout(60)
def test_a_kill_at_any_moment_leaves_the_old_or_the_new_record(state, tmp_path):
    for lines in range(1, 16):
        last = saved_before_kill(tmp_path, lines)
        record = state.load_record()
        assert isinstance(record, RoomRecord)
        assert record.memory.answers in (last, last + 1)
        assert len(record.memory.transcript[0].text) == record.memory.answers
    with state.lock():  # the next host clears away what a killed one left
        assert sorted(path.name for path in state.folder.iterdir()) == ["host.lock", "room.json"]


# ---- one host a room ----------------------------------------------------------------------------


def test_a_room_has_one_host_on_a_machine(state):
    with state.lock() as lock:
        assert lock is not None
        assert state.lock() is None
    with state.lock() as again:
        assert again is not None


def test_a_new_host_clears_away_what_was_not_finished(state):
    folder = state.make_folder()
    (folder / ".room.json.x1y2").touch()
    (folder / ".gate.json.x1y2").touch()
    (folder / ".pass-cellar.json.x1y2").touch()  # a device may be writing that
    with state.lock():
        assert {path.name for path in folder.iterdir()} == {"host.lock", ".pass-cellar.json.x1y2"}


def test_a_room_is_not_forgotten_under_its_running_host(state):
    with pytest.raises(CommandFailed, match="Nothing is kept"):
        forget_room(state)
    with state.lock(), pytest.raises(CommandFailed, match="end its host first"):
        forget_room(state)
    assert forget_room(state) == 0
    assert not state.folder.exists()


# ---- passes and deaths --------------------------------------------------------------------------


@given(st.text(max_size=80))
def test_any_device_name_makes_a_file_name(tmp_path_factory, name):
    state = RoomState(tmp_path_factory.mktemp("room") / CODE)
    state.save_pass(name, "p" * 22)
    assert state.load_pass(name) == "p" * 22
    assert state.load_pass(f"{name}!") == ""


def test_long_names_that_begin_alike_are_two(state):
    state.save_pass("n" * 300 + "a", "first")
    state.save_pass("n" * 300 + "b", "second")
    assert state.load_pass("n" * 300 + "a") == "first"


def test_a_device_that_was_killed_while_it_loaded_says_so(state):
    state.save_loading("cellar", 1000.0)
    death = state.load_death("cellar", 1042.25)
    assert death.loading
    assert death.during == "loading"
    assert death.ago == pytest.approx(42.2, abs=0.1)
    assert death.at == 1_000_000
    assert state.load_death("attic", 1042.0) is None


def test_a_load_that_ended_is_no_death(state):
    state.clear_loading("cellar")
    state.save_loading("cellar", 1000.0)
    state.clear_loading("cellar")
    assert state.load_death("cellar", 1001.0) is None


@pytest.mark.parametrize(
    ("age_s", "ago_s"), [(0, 0.0), (600, 600.0), (601, None), (-5, 0.0), (-601, None)]
)
def test_a_death_is_told_for_ten_minutes(state, age_s, ago_s):
    state.save_loading("cellar", 1000.0)
    death = state.load_death("cellar", 1000.0 + age_s)
    assert (death and death.ago) == ago_s


@pytest.mark.parametrize("at", ["x", None, [], {}, float("nan"), float("inf"), 10**400])
def test_a_broken_note_is_no_death(state, at):
    folder = state.make_folder()
    (folder / "loading-cellar.json").write_text(json.dumps({"version": 1, "at": at}))
    assert state.load_death("cellar", 1000.0) is None


# ---- folders that are no good -------------------------------------------------------------------


def no_rooms_folder(folder) -> None:
    (folder / "rooms").write_text("")


def no_room_folder(folder) -> None:
    (folder / "rooms").mkdir()
    (folder / "rooms" / CODE).write_text("")


def lock_is_a_folder(folder) -> None:
    (folder / "rooms" / CODE / "host.lock").mkdir(parents=True)


@pytest.mark.parametrize("spoil", [no_rooms_folder, no_room_folder, lock_is_a_folder])
def test_a_folder_that_cannot_be_used_is_a_sentence(tmp_path, environment, state, spoil):
    spoil(tmp_path)
    with pytest.raises(CommandFailed, match="cannot be used"):
        state.lock()
    assert state.load_gate() == {}
    assert state.load_pass("otter") == ""
    assert state.load_record() is None
    assert rooms_here(environment) == []
    assert recorded_rooms(environment) == []


def test_a_folder_that_cannot_be_listed_is_a_sentence(environment, state, monkeypatch):
    state.make_folder()

    def closed(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", closed)
    for listed in (rooms_here, recorded_rooms):
        with pytest.raises(CommandFailed, match="cannot be used"):
            listed(environment)


@pytest.mark.parametrize(
    "name", ["gate.json", "room.json", "pass-otter.json", "loading-otter.json"]
)
def test_a_folder_in_the_place_of_a_file_is_no_file(state, name):
    (state.make_folder() / name).mkdir()
    assert state.load_gate() == {}
    assert state.load_record() is None
    assert state.load_pass("otter") == ""
    assert state.load_death("otter", 0.0) is None
    with pytest.raises(OSError, match="irectory"):
        state._write(name, b"")
    assert [path.name for path in state.folder.iterdir()] == [name]


def test_a_deeply_nested_file_is_none(state):
    nested = "[" * 100_000
    for name in ("gate.json", "room.json", "pass-otter.json"):
        (state.make_folder() / name).write_text(f'{{"version": 1, "pass": {nested}')
    assert state.load_gate() == {}
    assert state.load_record() is None
    assert state.load_pass("otter") == ""
