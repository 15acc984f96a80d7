"""A room put together by hand: control, host, join and ask as separate commands."""

import signal

import pytest

from tests.support.program import Program, run

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(120)]


@pytest.fixture
def start(signal_url):
    programs = []

    def start(*arguments: str) -> Program:
        programs.append(Program.start(*arguments, "--signal", signal_url))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def test_a_guest_asks_a_room_of_two(start, signal_url):
    host = start("host", "--open", "--code", "4TK-G9P", "--name", "attic", "--max-tokens", "30")
    host.until("The room 4TK-G9P is open.")
    host.until("So does anyone who knows the code 4TK-G9P (--open)")
    worker = start("join", "4tkg9p", "--name", "cellar", "--pledge", "2")
    host.until("is online")
    worker.until("is online")
    asked = run("ask", "4TK-G9P", "What is a pool?", "--signal", signal_url)
    assert asked.process.returncode == 0, asked.stderr
    assert len(asked.stdout.strip()) > 20
    assert asked.stdout.strip() in host.stdout
    as_json = run("ask", "4TK-G9P", "And a lake?", "--json", "--signal", signal_url)
    assert as_json.json()["answer"]

    late = start("join", "4TK-G9P", "--name", "late")
    late.until("Joined as late")
    late.until("is online")

    taken = run("host", "--open", "--code", "4TK-G9P", "--signal", signal_url)
    assert taken.process.returncode == 1
    assert "is open already" in taken.stderr

    host.interrupt()
    assert host.end() == 130
    assert worker.end() == 0
    assert "The host closed the room" in worker.stderr


def test_no_such_room(signal_url):
    lost = run("join", "222-222", "--signal", signal_url)
    assert lost.process.returncode == 1
    assert lost.stderr.startswith("poolhouse: ")
    assert "room" in lost.stderr


def test_pledges_too_small_for_the_model(start):
    host = start("host", "--open", "--code", "AAAAAA", "--name", "host", "--pledge", "0.01")
    host.until("poolhouse join")
    worker = start("join", "AAAAAA", "--name", "tiny", "--pledge", "0.01")
    host.until("Waiting for another device, or a larger pledge")
    assert "GB are missing" in host.stderr
    assert "tiny" in host.stderr
    worker.until("GB are missing")
    start("join", "AAAAAA", "--name", "roomy", "--pledge", "2")
    host.until("Raise the pledge of host")  # the host lends too little for its own part


@pytest.mark.long
@pytest.mark.timeout(300)
def test_a_host_that_dies_and_never_returns_ends_its_workers_with_a_reason(start):
    host = start("host", "--open", "--code", "BBBBBB")
    host.until("poolhouse join")
    worker = start("join", "BBBBBB", "--name", "cellar")
    worker.until("is online")
    host.process.kill()
    worker.until("trying to get back in")
    assert worker.end(timeout_s=200) == 1
    assert "The host did not come back; the room is over for this device." in worker.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_control_plane_that_ends_in_order_succeeds(number):
    control = Program.start(
        *("control", "--host", "127.0.0.1", "--port", "0", "--admin-port", "0", "--json")
    )
    try:
        control.until_answering()
        control.process.send_signal(number)
        assert control.end(timeout_s=15) == 0
        assert "Traceback" not in control.stderr
    finally:
        control.kill()
