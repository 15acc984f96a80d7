"""Rooms that outlive their host: killed, ended by the system, closed by the person."""

import re
import signal

import pytest

from tests.support.program import Program, run

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(120)]


@pytest.fixture
def start(tmp_path):
    """Start a program that keeps its state in a folder of the test's own."""
    programs = []

    def start(*arguments: str, **env: str) -> Program:
        env = {"POOLHOUSE_STATE": str(tmp_path / "host"), **env}
        programs.append(Program.start(*arguments, env=env))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


@pytest.fixture
def host(start, signal_url):
    """Open a room, or resume one; its process and its invite link."""

    def host(*arguments: str, **env: str) -> tuple[Program, str]:
        program = start("host", *arguments, POOLHOUSE_SIGNAL=signal_url, **env)
        program.until("poolhouse join '")
        return program, re.search(r"poolhouse join '([^']+)'", program.stderr)[1]

    return host


def end(program: Program, number: signal.Signals) -> int:
    program.process.send_signal(number)
    return program.end()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_a_host_that_was_ended_takes_its_room_up_again(start, host, number):
    before, link = host("--name", "attic", "--wait", "9", "--deny-unknown")
    assert end(before, number) != 0
    again, same_link = host("--resume", "--wait", "9")
    assert same_link == link
    assert "Taking up the room" in again.stderr
    again.until("Nobody else does (--deny-unknown)")
    device = start("join", "--name", "cellar", POOLHOUSE_ROOM=link)
    device.until("Joined as cellar.")
    status = start("room", "status", "--json")
    status.end()
    assert [device["name"] for device in status.json()["devices"]] == ["attic", "cellar"]


def test_a_room_that_its_person_closed_stays_closed(host):
    before, link = host("--wait", "9")
    assert end(before, signal.SIGINT) == 130
    again, other_link = host("--resume", "--wait", "9")
    assert "No room was hosted here in the last 15 minutes" in again.stderr
    assert other_link != link


def test_a_room_has_one_host_at_a_time(host):
    """Two units that both resume do not fight for one room."""
    before, link = host("--wait", "9")
    before.process.kill()
    before.end()
    _, first = host("--resume", "--wait", "9")
    second, other = host("--resume", "--wait", "9")
    assert first == link
    assert other != link
    assert "opening a new one" in second.stderr


def test_up_starts_everything_again_under_the_same_code(start):
    up = start("up", "--devices", "2", "--ask", "Tell me all about pools.", "--max-tokens", "1500")
    up.until_answering()
    up.process.kill()
    up.end()
    again = start("up", "--resume", "--ask", "What is a pool?", "--max-tokens", "8", "--json")
    assert again.end() == 0
    assert re.search(r"Taking up the room \w{3}-\w{3}", again.stderr)
    assert [device["name"] for device in again.json()["devices"]] == ["host", "worker-1"]
    closed = start("up", "--resume", "--devices", "1", "--ask", "And?", "--max-tokens", "1")
    assert closed.end() == 0
    assert "opening a new one" in closed.stderr


QUESTION = "Tell me everything about swimming pools."
SAME = ("--split", "15,15", "--max-tokens", "80", "--temperature", "0")


@pytest.fixture(scope="module")
def undisturbed() -> str:
    """The answer of a room in which nothing happens."""
    ended = run("up", "--devices", "2", "--ask", QUESTION, *SAME, "--json")
    return ended.json()["answer"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "term"])
def test_an_answer_goes_on_under_the_next_host(start, host, tmp_path, undisturbed, number):
    """Worker and guest knock until a host is back; nobody presses a key, the text is the same."""
    before, link = host("--name", "attic", *SAME)
    start("join", "--name", "cellar", POOLHOUSE_ROOM=link, POOLHOUSE_STATE=str(tmp_path / "worker"))
    before.until("is online")
    asking = start("ask", link, QUESTION, POOLHOUSE_STATE=str(tmp_path / "guest"))
    asking.until_answering(60)
    assert end(before, number) != 0
    again, same_link = host("--resume")
    assert same_link == link
    assert "one was being answered" in again.stderr
    again.until("Waiting up to 25 s for cellar")
    assert asking.end() == 0
    assert asking.stdout.strip() == undisturbed.strip()
