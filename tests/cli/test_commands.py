"""The command line without rooms: help, settings, what a command may import."""

import json
import signal
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from poolhouse_node.cli.main import app
from poolhouse_node.cli.options import parse_split
from tests.support.program import run

COMMANDS = [
    (),
    ("up",),
    ("host",),
    ("join",),
    ("ask",),
    ("control",),
    ("models",),
    ("models", "list"),
    ("models", "pull"),
    ("models", "show"),
    ("doctor",),
    ("bench",),
    ("bench", "wire"),
    ("bench", "decode"),
    ("turn",),
    ("turn", "config"),
    ("turn", "check"),
    ("turn", "rotate"),
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(command):
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_an_unknown_command_is_a_usage_error():
    assert CliRunner().invoke(app, ["hots"]).exit_code == 2


@pytest.mark.parametrize(("text", "split"), [(None, None), ("10,10,10", (10, 10, 10)), ("7", (7,))])
def test_splits_are_read(text, split):
    assert parse_split(text) == split


@pytest.mark.parametrize("text", ["", "a", "10;10", "0", "-1,5", "1.5"])
def test_other_splits_are_usage_errors(text):
    with pytest.raises(typer.BadParameter):
        parse_split(text)


def imported_by(*arguments: str) -> set[str]:
    """Top-level packages loaded after running a command in a process of its own."""
    code = (
        "import sys, json, contextlib, io\n"
        "from poolhouse_node.cli.main import app\n"
        "with contextlib.redirect_stdout(io.StringIO()):\n"
        f"    app({list(arguments)!r}, standalone_mode=False)\n"
        "print(json.dumps(sorted({name.split('.')[0] for name in sys.modules})))\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20
    )
    return set(json.loads(ended.stdout.splitlines()[-1]))


HEAVY = {"torch", "numpy", "aiortc", "aiolibdatachannel", "litestar", "tokenizers"}


def test_help_loads_nothing_heavy():
    assert not imported_by("--help") & HEAVY


def test_the_control_plane_loads_neither_torch_nor_numpy_nor_webrtc():
    code = (
        "import sys, poolhouse_node.cli.control\n"
        "heavy = {'torch', 'numpy', 'aiortc', 'aiolibdatachannel', 'tokenizers'}\n"
        "sys.exit(', '.join(heavy & set(sys.modules)) or 0)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20
    )
    assert ended.returncode == 0, ended.stderr


def test_the_catalogue_is_listed_for_people_and_programs():
    people = CliRunner().invoke(app, ["models", "list"])
    assert "smollm2-135m" in people.output
    programs = CliRunner().invoke(app, ["models", "list", "--json"])
    rows = json.loads(programs.stdout)
    assert {"key", "label", "layers", "size_bytes", "here"} <= set(rows[0])


@pytest.mark.room
def test_a_model_is_shown():
    shown = run("models", "show", "qwen3-1.7b", "--json")
    assert shown.json()["layers"] == 28
    assert shown.process.returncode == 0


@pytest.mark.room
def test_settings_come_from_option_then_environment_then_file(tmp_path):
    """Seen in where `join` looks for signaling, which is nowhere: its error names the server."""
    file = tmp_path / "poolhouse.toml"
    file.write_text('[join]\nsignal = "127.0.0.1:1"\n')

    def server(*arguments: str, env: dict[str, str] | None = None) -> str:
        ended = run("--config", str(file), "join", "4TK-G9P", *arguments, env=env)
        assert ended.process.returncode == 1
        return ended.stderr

    assert "127.0.0.1:1 " in server()
    assert "127.0.0.1:2 " in server(env={"POOLHOUSE_SIGNAL": "127.0.0.1:2"})
    env = {"POOLHOUSE_SIGNAL": "127.0.0.1:2"}
    assert "127.0.0.1:3 " in server("--signal", "127.0.0.1:3", env=env)


@pytest.mark.room
@pytest.mark.webrtc
@pytest.mark.timeout(60)
def test_doctor_finds_this_machine_well():
    ended = run("doctor", "--json", "--signal", "127.0.0.1:1")
    findings = {finding["what"]: finding["verdict"] for finding in ended.json()}
    assert findings.pop("signaling") == "note"
    assert findings.pop("WebRTC by libdatachannel") == "ok"
    assert findings.pop("WebRTC by aiortc") == "ok"
    assert findings.pop("packed weights") == "ok"
    assert "missing" not in findings.values()
    assert ended.process.returncode == 0


def test_ctrl_c_while_the_program_is_being_imported_shows_no_traceback():
    """The handler is set before the first heavy import."""
    code = (
        "import builtins, os, signal, sys\n"
        "from poolhouse_node.__main__ import main\n"
        "real = builtins.__import__\n"
        "def slow(name, *rest):\n"
        "    if name == 'poolhouse_node.cli.main': os.kill(os.getpid(), signal.SIGINT)\n"
        "    return real(name, *rest)\n"
        "builtins.__import__ = slow\n"
        "main()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=20
    )
    assert ended.returncode == -signal.SIGINT
    assert ended.stderr == ""
