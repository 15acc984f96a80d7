"""The gate between real processes: links, passes, the lobby, the person's commands."""

import re
import stat
from pathlib import Path

import pytest

from tests.support.program import Program, run

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(120)]


@pytest.fixture
def start(signal_url, tmp_path):
    """Start a device that keeps its state in a folder of its own."""
    programs = []

    def start(*arguments: str, state: str = "device", **env: str) -> Program:
        env = {"POOLHOUSE_STATE": str(tmp_path / state), "POOLHOUSE_SIGNAL": signal_url, **env}
        programs.append(Program.start(*arguments, env=env))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


def link_of(host: Program) -> str:
    host.until("poolhouse join '")
    return re.search(r"poolhouse join '([^']+)'", host.stderr)[1]


def room(tmp_path, *command: str) -> Program:
    return run("room", *command, env={"POOLHOUSE_STATE": str(tmp_path / "host")})


def test_the_lobby_and_the_commands_of_the_person(start, tmp_path):
    host = start("host", "--name", "attic", "--wait", "9", state="host")
    code = re.search(r"#?/r/(\w+)#", link_of(host))[1]
    worker = start("join", code, "--name", "cellar")
    host.until("? cellar")
    worker.until("Both screens must show")
    digits = re.search(r"must show (\d{3} \d{3})", worker.stderr)[1]
    assert f"digits {digits}" in host.stderr

    status = room(tmp_path, "status", "--json").json()
    assert [device["name"] for device in status["devices"]] == ["attic"]
    assert status["waiting"][0]["digits"] == digits
    assert room(tmp_path, "allow", "nobody").process.returncode == 1
    assert room(tmp_path, "allow", digits).process.returncode == 0
    worker.until("Joined as cellar.")
    host.until("+ cellar joined")

    shown = room(tmp_path, "status").stdout
    assert "cellar" in shown
    assert "libdatachannel" in shown
    assert room(tmp_path, "kick", "cellar").process.returncode == 0
    assert worker.end() == 1
    assert "ended this link" in worker.stderr


def test_a_link_lets_in_and_its_pass_brings_back(start, tmp_path):
    host = start("host", "--deny-unknown", "--wait", "9", state="host")
    link = link_of(host)
    first = start("join", "--name", "cellar", POOLHOUSE_ROOM=link)
    first.until("Joined as cellar.")
    kept = next((tmp_path / "device").rglob("pass-*.json"))
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    first.interrupt()
    first.end()

    new_link = re.search(r"http\S+", room(tmp_path, "key").stdout)[0]
    assert new_link != link
    code = re.search(r"/r/(\w+)#", link)[1]
    back = start("join", code, "--name", "cellar")
    back.until("Joined as cellar.")

    stranger = start("join", POOLHOUSE_ROOM=link, state="stranger")
    assert stranger.end() == 1
    assert "did not let this device in" in stranger.stderr
    friend = start("join", "--name", "friend", POOLHOUSE_ROOM=new_link, state="friend")
    friend.until("Joined as friend.")


def test_a_restarted_host_keeps_its_key_and_its_passes(start, tmp_path):
    host = start("host", "--code", "4TK-G9P", "--wait", "9", state="host")
    link = link_of(host)
    device = start("join", "--name", "cellar", POOLHOUSE_ROOM=link)
    device.until("Joined as cellar.")
    host.process.kill()
    device.interrupt()  # it would knock for a minute
    device.end()
    again = start("host", "--code", "4TK-G9P", "--wait", "9", "--deny-unknown", state="host")
    assert link_of(again) == link
    back = start("join", "4TK-G9P", "--name", "cellar")
    back.until("Joined as cellar.")
    gate = tmp_path / "host" / "rooms" / "4TKG9P" / "gate.json"
    assert stat.S_IMODE(gate.stat().st_mode) == 0o600
    assert stat.S_IMODE(gate.parent.stat().st_mode) == 0o700

    again.interrupt()
    again.end()
    assert room(tmp_path, "forget", "4TK-G9P").process.returncode == 0
    assert not gate.exists()
    assert room(tmp_path, "forget", "4TK-G9P").process.returncode == 1


def test_commands_without_a_host_say_so(tmp_path):
    nobody = room(tmp_path, "status")
    assert nobody.process.returncode == 1
    assert "No room is hosted on this machine" in nobody.stderr


def test_a_room_behind_the_gate_answers_a_guest_with_its_link(start):
    host = start("host", "--max-tokens", "20", state="host")
    link = link_of(host)
    worker = start("join", "--name", "cellar", POOLHOUSE_ROOM=link)
    worker.until("is online")
    asked = start("ask", link, "What is a pool?", "--json", state="guest")
    assert asked.end() == 0
    assert asked.json()["answer"]


def test_the_key_is_nowhere_but_in_the_link(start, tmp_path):
    host = start("host", "--wait", "9", state="host")
    link = link_of(host)
    key = link.partition("k=")[2]
    device = start("--verbose", "join", "--name", "cellar", POOLHOUSE_ROOM=link)
    device.until("Joined as cellar.")
    command = Path(f"/proc/{device.process.pid}/cmdline").read_text()
    assert key not in command
    assert key not in device.stderr
    assert host.stderr.count(key) == 1


def test_a_room_is_opened_by_a_link_that_was_made_before(start, tmp_path, signal_url):
    made = start("room", "new", "--signal", signal_url)
    assert made.end() == 0
    link = made.stdout.strip()
    file = tmp_path / "room-link"
    file.write_text(link + "\n")
    host = start(
        "host", "--deny-unknown", "--wait", "9", state="host", POOLHOUSE_INVITE_FILE=str(file)
    )
    host.until("is open")
    device = start("join", "--name", "cellar", POOLHOUSE_ROOM_FILE=str(file))
    device.until("Joined as cellar.")
    key = link.partition("k=")[2]
    assert key
    assert key not in host.stderr + device.stderr
