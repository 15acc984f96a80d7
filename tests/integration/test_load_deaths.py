"""Workers killed with -9 while they load, and ended by the system, as real processes."""

import re
import signal
import time
from pathlib import Path

import pytest

from tests.support.program import PATIENCE_S, Program

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(120)]

MEMORY = ("--pledge", "1")
"""All layers of the model fit, with little to spare."""
LEAVES_WITHIN_S = 10.0
NOTE = "rooms/*/loading-cellar.json"


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


@pytest.fixture
def host(start):
    """A host that deals when one worker is here, and its invite link."""

    def host(*arguments: str) -> tuple[Program, str]:
        program = start("host", "host", "--name", "attic", "--wait", "1", *MEMORY, *arguments)
        program.until("poolhouse join '")
        return program, re.search(r"poolhouse join '([^']+)'", program.stderr)[1]

    return host


@pytest.fixture
def join(start):
    def join(link: str) -> Program:
        return start("worker", "join", "--name", "cellar", *MEMORY, POOLHOUSE_ROOM=link)

    return join


def until_noted(worker: Program, folder: Path) -> None:
    """Wait until it loads. Layers wait for torch, which takes a second or more to import."""
    deadline = time.monotonic() + PATIENCE_S
    while not list(folder.glob(NOTE)):
        assert worker.process.poll() is None, worker.stderr
        assert time.monotonic() < deadline, worker.stderr
        time.sleep(0.01)


def kill_while_it_loads(worker: Program, folder: Path) -> None:
    until_noted(worker, folder)
    worker.process.kill()
    worker.end()
    assert list(folder.glob(NOTE))


def test_a_worker_killed_while_it_loads_is_dealt_less_then_nothing(tmp_path, host, join, start):
    program, link = host()
    kill_while_it_loads(join(link), tmp_path / "worker")
    worker = join(link)
    worker.until("cellar was killed while it loaded")
    words = r"cellar was killed while it loaded (\d+) layers. It is dealt at most (\S+) GB"
    had, most_gb = re.search(words, worker.stderr).groups()
    assert 0 < float(most_gb) < float(MEMORY[1])
    worker.until("is online")
    assert re.search(words, program.stderr)
    assert not list((tmp_path / "worker").glob(NOTE))
    assert 1 <= layers_now(start)["cellar"] <= int(had) // 2

    worker.process.kill()  # while it is idle: no death by loading
    worker.end()
    kill_while_it_loads(join(link), tmp_path / "worker")
    worker = join(link)
    worker.until("It is dealt no more of them, and may ask.")
    worker.until("is online")
    assert set(layers_now(start)) == {"attic"}
    asked = start("guest", "ask", link, "What is a pool?")
    assert asked.end() == 0, asked.stderr


@pytest.mark.parametrize("question", ["long answer", "long prompt"])
def test_a_worker_that_is_ended_in_an_answer_says_so_at_once(host, join, start, question):
    program, link = host("--max-tokens", "1500", "--temperature", "0", "--split", "10,20")
    worker = join(link)
    program.until("is online")
    prompt = "Tell me all about pools." + " And about water." * (300 if "prompt" in question else 0)
    asked = start("guest", "ask", link, prompt, "--name", "guest")
    if question == "long answer":
        asked.until_answering()
    else:
        program.until("guest asks")
    left_at = time.monotonic()
    worker.process.send_signal(signal.SIGTERM)
    program.until("cellar left (it held layers 10–29)", timeout_s=3)
    assert worker.end(LEAVES_WITHIN_S) == 128 + signal.SIGTERM
    assert time.monotonic() - left_at < LEAVES_WITHIN_S
    assert "Traceback" not in worker.stderr
    again = join(link)
    again.until("is online")
    asked.until_answering(len(asked.stdout) + 50)  # the answer goes on


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_ended_while_it_loads_did_not_die(tmp_path, host, join, number):
    program, link = host()
    worker = join(link)
    until_noted(worker, tmp_path / "worker")
    worker.process.send_signal(number)
    assert worker.end(LEAVES_WITHIN_S) == 128 + number
    assert "Traceback" not in worker.stderr
    assert not list((tmp_path / "worker").glob(NOTE))
    program.until("cellar left (it held layers")
    join(link)
    program.until("is online")
    assert "was killed" not in program.stderr


def layers_now(start) -> dict[str, int]:
    """Layers by device, as the host's status says."""
    status = start("host", "room", "status", "--json")
    assert status.end() == 0, status.stderr
    held = {each["name"]: each.get("layers") for each in status.json()["devices"]}
    return {name: layers[1] - layers[0] for name, layers in held.items() if layers}
