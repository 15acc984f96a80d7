"""One `poolhouse join` in two rooms: real processes, real links, the real model."""

import functools
import json
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.support.program import Program
from tests.support.room_processes import RoomProcesses, pause

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(500)]

TOKENS = 90
PATIENCE_S = 200.0
QUESTIONS = {"one": "Tell me everything about swimming pools.", "two": "What is a lake?"}
HELD_LAYERS = 20
LAYER_BYTES = 3_540_000 * 4
EMBEDDING_BYTES = 49_152 * 576 * 4
"""Of SmolLM2, in float32."""


@functools.cache
def undisturbed(question: str) -> str:
    """What a room of one device answers."""
    alone = Program.start(
        *("up", "--devices", "1", "--ask", question, "--temperature", "0", "--json"),
        *("--max-tokens", str(TOKENS)),
    )
    try:
        assert alone.end(PATIENCE_S) == 0, alone.stderr
    finally:
        alone.kill()
    return alone.json()["answer"]


class TwoRooms:
    """A host each, and a worker that is in both."""

    def __init__(self, folder: Path, signal_url: str) -> None:
        self.folder, self.programs = folder, []
        self.rooms = {name: RoomProcesses(folder / name, signal_url, TOKENS) for name in QUESTIONS}
        for room in self.rooms.values():
            room.start_host("--wait", "1", "--split", f"10,{HELD_LAYERS}", "--temperature", "0")

    def join(self, *options: str) -> Program:
        links = [room.link for room in self.rooms.values()]
        shared = Program.start(
            *("join", "--name", "shared", "--pledge", "3", *options, *links),
            env={"POOLHOUSE_STATE": str(self.folder / "shared")},
        )
        self.programs.append(shared)
        return shared

    def close(self) -> None:
        for program in self.programs:
            program.kill()
        for room in self.rooms.values():
            room.__exit__()

    def check(self, name: str, guest: Program) -> None:
        """The guest gets the answer that an undisturbed room gives."""
        try:
            assert guest.end(PATIENCE_S) == 0, guest.stderr
        except subprocess.TimeoutExpired:
            screens = [program.stderr for program in (self.rooms[name].host, *self.programs)]
            pytest.fail("no answer came\n" + "\n".join(screens))
        assert guest.json()["answer"] == undisturbed(QUESTIONS[name])

    def code(self, name: str) -> str:
        return re.search(r"The room (\S+) is open", self.rooms[name].host.stderr)[1]


@pytest.fixture
def two(tmp_path, signal_url):
    rooms = TwoRooms(tmp_path, signal_url)
    yield rooms
    rooms.close()


def own_bytes(program: Program) -> int:
    """Memory that is this process's alone, files it has mapped left out."""
    status = Path(f"/proc/{program.process.pid}/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) * 1024


def test_one_process_serves_two_rooms_with_one_copy_of_the_weights(two):
    shared = two.join("--json")
    for name in two.rooms:
        two.rooms[name].host.until("is online", PATIENCE_S)
    lines = [json.loads(line) for line in shared.stdout.splitlines()]
    assert {line["room"] for line in lines} == {two.code(name) for name in two.rooms}
    weights_bytes = HELD_LAYERS * LAYER_BYTES
    host_bytes = own_bytes(two.rooms["one"].host)
    bare_bytes = host_bytes - (30 - HELD_LAYERS) * LAYER_BYTES - EMBEDDING_BYTES
    print(
        f"weights {weights_bytes / 1e6:.0f} MB, shared {own_bytes(shared) / 1e6:.0f} MB, "
        f"bare {bare_bytes / 1e6:.0f} MB"
    )
    assert 0.7 < (own_bytes(shared) - bare_bytes) / weights_bytes < 1.5

    asked = {name: room.ask(QUESTIONS[name]) for name, room in two.rooms.items()}
    for name, guest in asked.items():
        two.check(name, guest)

    two.rooms["one"].host.interrupt()
    shared.until('"event": "room_over"')
    assert two.rooms["two"].ask(QUESTIONS["two"]).end(PATIENCE_S) == 0

    shared.process.send_signal(signal.SIGTERM)
    two.rooms["two"].host.until("- shared left", timeout_s=5)
    assert shared.end(15) == 143
    assert "shared stopped responding" not in two.rooms["two"].host.stderr


def test_after_kill_and_restart_it_has_both_seats_and_both_answers_go_on(two):
    shared = two.join()
    for room in two.rooms.values():
        room.host.until("is online", PATIENCE_S)
    for name in two.rooms:
        assert f"{two.code(name)} Joined as shared." in shared.stderr
    asked = {name: room.ask(QUESTIONS[name]) for name, room in two.rooms.items()}
    for room in two.rooms.values():
        room.until_shown(40)
    shared.process.kill()
    pause(2)
    two.join()
    for name, guest in asked.items():
        two.check(name, guest)
        assert "whole again" in two.rooms[name].host.stderr
