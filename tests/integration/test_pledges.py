"""A worker is dealt more than it lends, as real processes with the real model."""

import re

import pytest

from tests.support.program import Program

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(120)]

REFUSED = (
    r"cellar couldn't load its layers \(These layers need (\d\.\d\d) GB of memory .*; "
    r"(\d\.\d\d) GB are left of what this device lends\.\)"
)


@pytest.fixture
def start(tmp_path, signal_url):
    """Start a program whose state is kept in the folder of that name."""
    programs = []

    def start(where: str, *arguments: str, **env: str) -> Program:
        env = {"POOLHOUSE_STATE": str(tmp_path / where), "POOLHOUSE_SIGNAL": signal_url, **env}
        programs.append(Program.start(*arguments, env=env))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def open_room(start, *arguments: str) -> tuple[Program, str]:
    program = start("host", "host", "--name", "attic", "--wait", "1", *arguments)
    program.until("poolhouse join '")
    return program, re.search(r"poolhouse join '([^']+)'", program.stderr)[1]


def join(start, link: str, *arguments: str) -> Program:
    return start("worker", "join", "--name", "cellar", *arguments, POOLHOUSE_ROOM=link)


def refusal(program: Program) -> tuple[float, float]:
    """GB that were needed and that were left, as this screen says them."""
    program.until("left of what this device lends")
    words = " ".join(program.stderr.split())  # a terminal's lines are short
    return tuple(map(float, re.search(REFUSED, words).groups()))


def test_a_deal_by_hand_that_is_too_large_is_refused_on_both_screens(start):
    host, link = open_room(start, "--split", "10,20", "--pledge", "1")
    worker = join(start, link, "--pledge", "0.05")
    needed_gb, left_gb = refusal(host)
    assert (needed_gb, left_gb) == refusal(worker)
    assert needed_gb > left_gb == 0.05
    assert "cellar: loaded" not in host.stderr
    assert worker.process.poll() is None


def test_a_worker_that_holds_layers_larger_than_its_host_counts_them_is_dealt_fewer(start):
    host, link = open_room(start, "--pledge", "0.3", "--precision", "packed")
    worker = join(start, link, "--pledge", "0.1", "--precision", "exact")
    needed_gb, left_gb = refusal(worker)
    assert needed_gb > left_gb == 0.1
    host.until("is online")
    status = start("host", "room", "status", "--json")
    assert status.end() == 0, status.stderr
    held = {each["name"]: each.get("layers") for each in status.json()["devices"]}
    lo, hi = held["cellar"]
    assert 1 <= hi - lo <= 6  # of 17 MB each, with their keys and values
    asked = start("guest", "ask", link, "What is a pool?")
    assert asked.end() == 0, asked.stderr
