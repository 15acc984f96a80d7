"""Answers that outlive their devices: real processes, real links, the real model.

Every answer must be the text of an undisturbed room, whatever happens to its devices. The times
in ``docs/explanation/recovery.md`` come from these tests, run with ``-rP``.
"""

import contextlib
import functools
import json
import time

import pytest

from tests.support.namespaces import networks
from tests.support.program import Program
from tests.support.room_processes import RoomProcesses, pause

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(240)]

QUESTION = "Tell me everything about swimming pools."
TOKENS = 180
LONG_QUESTION = "Which of these words comes first in a dictionary? " + "pool water house " * 260
"""More than 800 tokens: its prompt takes seconds to read."""


@functools.cache
def undisturbed(question: str) -> str:
    """What a room of one device answers."""
    alone = Program.start(
        *("up", "--devices", "1", "--ask", question, "--temperature", "0", "--json"),
        *("--max-tokens", str(TOKENS)),
    )
    try:
        assert alone.end() == 0, alone.stderr
    finally:
        alone.kill()
    return alone.json()["answer"]


@pytest.fixture
def room(tmp_path, signal_url):
    with RoomProcesses(tmp_path, signal_url, TOKENS) as room:
        yield room


def check(room: RoomProcesses, asked: Program, since: float, question: str = QUESTION) -> None:
    """The answer is the right one, at the guest and on the host's screen; print the pause."""
    assert asked.end(200) == 0, asked.stderr + room.host.stderr
    assert asked.json()["answer"] == undisturbed(question)
    assert undisturbed(question).strip() in room.host.stdout
    print(f"longest pause: {room.host.longest_pause_s(since):.1f} s")


def restart_after(room: RoomProcesses, name: str, seconds: float) -> None:
    """Kill a worker with -9, and start it again."""
    room.workers[name].process.kill()
    pause(seconds)
    room.start_worker(name)


@pytest.mark.parametrize("name", ["worker-1", pytest.param("worker-2", marks=pytest.mark.long)])
def test_a_worker_killed_while_it_decodes(room, name):
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(200)
    since = time.monotonic()
    restart_after(room, name, 5)
    check(room, asked, since)
    assert "layers are dealt" not in room.host.stderr.partition("whole again")[2]
    assert "Results go to worker-2: direct (" in room.workers["worker-1"].stderr


def test_a_worker_killed_while_it_reads_the_prompt(room):
    room.open()
    asked = room.ask(LONG_QUESTION)
    room.host.until("guest asks:")
    since = time.monotonic()
    assert not room.host.stdout
    restart_after(room, "worker-2", 5)
    check(room, asked, since, LONG_QUESTION)


@pytest.mark.parametrize(
    "seconds",
    [4, *(pytest.param(seconds, marks=pytest.mark.long) for seconds in (12, 20))],
    ids=lambda s: f"{s} s",
)
def test_a_frozen_worker(room, seconds):
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(200)
    since = time.monotonic()
    room.workers["worker-1"].freeze()
    pause(seconds)
    room.workers["worker-1"].thaw()
    check(room, asked, since)
    assert "worker-1 stopped responding" in room.host.stderr


def test_two_workers_killed_at_once(room):
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(200)
    since = time.monotonic()
    for worker in room.workers.values():
        worker.process.kill()
    pause(5)
    for name in ("worker-1", "worker-2"):
        room.start_worker(name)
    check(room, asked, since)


def test_a_worker_from_another_process_while_the_old_one_is_frozen(room):
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(200)
    since = time.monotonic()
    old = room.workers["worker-2"]
    old.freeze()
    pause(1)
    new = room.start_worker("worker-2")
    check(room, asked, since)
    assert "Joined as worker-2." in new.stderr
    old.thaw()
    room.host.until("+ worker-2 2 joined")
    names = [device["name"] for device in room.status()["devices"]]
    assert sorted(names) == ["host", "worker-1", "worker-2", "worker-2 2"]


def test_a_killed_host_is_resumed(room):
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(300)
    since = time.monotonic()
    room.host.process.kill()
    room.start_host("--resume")
    assert asked.end(120) == 0, asked.stderr + room.host.stderr
    assert asked.json()["answer"] == undisturbed(QUESTION)
    assert undisturbed(QUESTION).strip() in room.host.stdout
    print(f"until the first new token: {room.host.out_at[0] - since:.1f} s")
    layers = {device["name"]: device["layers"] for device in room.status()["devices"]}
    assert layers["worker-1"] == [10, 20]
    assert layers["worker-2"] == [20, 30]


def test_a_worker_that_never_returns_is_dealt_around(room):
    room.host_options = ("--redeal-after", "6")
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(200)
    since = time.monotonic()
    room.workers["worker-1"].process.kill()
    check(room, asked, since)
    assert [d["name"] for d in room.status()["devices"] if d["layers"]] == ["host", "worker-2"]


@pytest.mark.long
def test_a_worker_that_never_returns_is_dealt_around_after_a_minute(room):
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(200)
    since = time.monotonic()
    room.workers["worker-1"].process.kill()
    check(room, asked, since)


def test_without_automatic_deals_it_waits_says_so_and_stop_works(room):
    room.host_options = ("--redeal-after", "never")
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(200)
    room.workers["worker-1"].process.kill()
    room.host.until("It goes on when the chain is whole again", timeout_s=30)
    waits = room.status()["waits_for"]
    assert waits["what"] == "waiting for worker-1 (layers 10–19) to return"
    assert waits["deal_in_s"] is None
    asked.interrupt()
    assert asked.end() == 130
    room.host.until("tok/s")  # the figures of an answer that was stopped


# ---- networks ------------------------------------------------------------------------------------


@pytest.fixture
def apart(tmp_path):
    """Every device in a network of its own; they meet at the control plane's."""
    with contextlib.ExitStack() as stack:
        nets = stack.enter_context(networks("control", "host", "worker-1", "worker-2", "guest"))
        control = Control(nets)
        stack.callback(control.end)
        room = RoomProcesses(tmp_path, control.start(), TOKENS, start=lambda name: nets[name].start)
        stack.enter_context(room)
        yield room, nets, control


class Control:
    """A control plane that can be away for a while."""

    def __init__(self, nets):
        self.nets, self.program = nets, None
        self.port = nets["control"].free_port()

    def start(self) -> str:
        address = self.nets["control"].address
        self.program = self.nets["control"].start(
            *("control", "--host", address, "--port", str(self.port)),
            *("--admin-port", "0", "--json"),
        )
        self.program.until_answering()
        return json.loads(self.program.stdout.splitlines()[0])["signal_url"]

    def end(self) -> None:
        self.program.kill()


@pytest.mark.netns
@pytest.mark.parametrize(
    ("pair", "seconds"),
    [
        (("worker-1", "worker-2"), 5),
        pytest.param(("worker-1", "worker-2"), 40, marks=pytest.mark.long),
        pytest.param(("host", "worker-1"), 5, marks=pytest.mark.long),
        pytest.param(("host", "worker-1"), 40, marks=pytest.mark.long),
    ],
    ids=str,
)
def test_a_link_that_is_cut(apart, pair, seconds):
    room, nets, _ = apart
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(200)
    since = time.monotonic()
    nets.cut(*pair)
    pause(seconds)
    nets.mend(*pair)
    check(room, asked, since)


@pytest.mark.netns
@pytest.mark.parametrize(
    "seconds", [10, pytest.param(30, marks=pytest.mark.long)], ids=lambda s: f"{s} s"
)
def test_signaling_is_away_while_a_worker_dies(apart, seconds):
    room, _, control = apart
    room.open()
    asked = room.ask(QUESTION)
    room.until_shown(200)
    since = time.monotonic()
    control.end()
    restart_after(room, "worker-2", 5)
    pause(seconds - 5)
    control.start()
    check(room, asked, since)
