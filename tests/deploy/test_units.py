"""The systemd units: systemd reads them without a word, and finds them shut in."""

import re
import shlex
import shutil
import subprocess

import pytest
import typer

from poolhouse_node.cli.main import app
from tests.support.compose import DEPLOY
from tests.support.known_variables import known_variables

pytestmark = pytest.mark.slow

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
MOST_EXPOSURE = 20
"""Tenths of what `systemd-analyze security` counts; a unit without any of this has 96."""

each_unit = pytest.mark.parametrize("unit", UNITS, ids=lambda unit: unit.stem)


def analyze(*arguments: str) -> subprocess.CompletedProcess:
    program = shutil.which("systemd-analyze")
    assert program, "the tests need systemd-analyze (Debian: systemd)"
    return subprocess.run([program, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def machine(tmp_path):
    """A root folder with the units, their drop-in, and a program where they look for one."""
    units = tmp_path / "etc" / "systemd" / "system"
    units.mkdir(parents=True)
    for unit in UNITS:
        shutil.copy(unit, units)
    drop_in = units / "poolhouse-join.service.d"
    drop_in.mkdir()
    shutil.copy(DEPLOY / "systemd" / "poolhouse-gpu.conf", drop_in / "gpu.conf")
    program = tmp_path / "opt" / "poolhouse" / "bin" / "poolhouse"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    return tmp_path


def verify(machine, unit: str) -> subprocess.CompletedProcess:
    return analyze("verify", "--recursive-errors=no", "--man=no", f"--root={machine}", unit)


def test_there_is_one_for_each_part():
    assert [unit.stem for unit in UNITS] == [
        "poolhouse-control", "poolhouse-host", "poolhouse-join",
    ]  # fmt: skip


@each_unit
def test_systemd_reads_it_without_a_word(machine, unit):
    done = verify(machine, unit.name)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_systemd_would_say_something(machine):
    unit = machine / "etc" / "systemd" / "system" / "poolhouse-host.service"
    unit.write_text(unit.read_text().replace("ProtectHome=", "ProtectHouse="))
    assert "ProtectHouse" in verify(machine, unit.name).stderr


@each_unit
def test_it_is_shut_in(machine, unit):
    done = analyze(
        "security", "--offline=true", f"--root={machine}", f"--threshold={MOST_EXPOSURE}", unit.name
    )
    assert done.returncode == (0 if unit.stem != "poolhouse-join" else done.returncode)
    # The worker is looked at with its drop-in for a GPU, which opens device files again.
    exposure = float(re.search(r"exposure level for \S+: ([\d.]+)", done.stdout)[1])
    assert exposure * 10 <= MOST_EXPOSURE + 5 * (unit.stem == "poolhouse-join")


@each_unit
def test_its_command_can_be_typed(unit):
    (line,) = re.findall(r"^ExecStart=(.*)$", unit.read_text(), re.MULTILINE)
    _, name, *words = shlex.split(line)
    command = typer.main.get_command(app).commands[name]
    command.make_context(name, ["ABCDEF", *words] if name == "join" else words)


@each_unit
def test_variables_exist_and_hold_no_secret(unit):
    text = unit.read_text()
    said = re.findall(r"(POOLHOUSE_\w+)=", text)
    assert set(said) <= known_variables()
    for line in re.findall(r"^Environment=(.*)$", text, re.MULTILINE):
        assert not re.search(r"(?:SECRET|TOKEN|INVITE|ROOM)=", line)


@each_unit
def test_it_has_time_to_say_goodbye_and_comes_back(unit):
    text = unit.read_text()
    assert re.search(r"^TimeoutStopSec=(?:30|60)$", text, re.MULTILINE)
    assert re.search(r"^Restart=always$", text, re.MULTILINE)


def test_devices_of_one_machine_do_not_share_a_state_folder():
    folders = [
        re.search(r"^StateDirectory=(\S+)$", unit.read_text(), re.MULTILINE)[1]
        for unit in UNITS
        if "StateDirectory=" in unit.read_text()
    ]
    assert len(folders) == len(set(folders)) == 2
