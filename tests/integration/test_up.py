"""Whole rooms of real processes, links and weights: `poolhouse up`."""

import os
import signal

import pytest

from tests.support.program import Program, alive, run
from tests.support.vectors import vectors

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(180)]

PROMPTS = vectors("smollm2_greedy")["prompts"]
LONG_ANSWER = ("--ask", "Tell me everything about swimming pools.", "--max-tokens", "1500")


@pytest.fixture
def program():
    started = []

    def start(*arguments: str) -> Program:
        started.append(Program.start(*arguments))
        return started[-1]

    yield start
    for one in started:
        one.kill()


def ask_raw(tmp_path, name: str, *arguments: str) -> dict:
    prompt = tmp_path / "prompt.txt"
    prompt.write_text(PROMPTS[name]["text"], encoding="utf-8")
    ended = run(
        *("up", "--raw", str(prompt), "--temperature", "0", "--max-tokens", "64", "--json"),
        *("--precision", "exact"),  # the reference is float32
        *arguments,
        timeout_s=150,
    )
    assert ended.process.returncode == 0, ended.stderr
    return ended.json()


@pytest.mark.parametrize("name", ["short", "long"])
@pytest.mark.parametrize("rtc", ["libdatachannel", "aiortc"])
def test_three_devices_give_the_reference_ids(tmp_path, name, rtc):
    line = ask_raw(tmp_path, name, "--devices", "3", "--split", "10,10,10", "--rtc", rtc)
    assert line["token_ids"] == PROMPTS[name]["greedy_ids"]
    assert line["prompt_tokens"] == PROMPTS[name]["n_prompt"]
    assert line["devices"] == [
        {"name": "host", "layers": [0, 10]},
        {"name": "worker-1", "layers": [10, 20]},
        {"name": "worker-2", "layers": [20, 30]},
    ]
    assert line["transport"].startswith(rtc)
    assert line["engine"].startswith("torch")
    assert line["ttft_s"] > 0
    assert line["tokens_per_s"] > 0


@pytest.mark.parametrize("name", ["short", "long"])
def test_one_device_gives_the_reference_ids(tmp_path, name):
    line = ask_raw(tmp_path, name, "--devices", "1")
    assert line["token_ids"] == PROMPTS[name]["greedy_ids"]
    assert line["transport"] == "none"


def test_the_default_split_gives_them_up_to_the_first_narrow_choice(tmp_path):
    line = ask_raw(tmp_path, "long", "--devices", "2")
    gaps = PROMPTS["long"]["gaps"]
    narrow = next((step for step, gap in enumerate(gaps) if gap < 0.02), len(gaps))
    assert line["token_ids"][:narrow] == PROMPTS["long"]["greedy_ids"][:narrow]
    assert narrow > 0
    assert sum(hi - lo for lo, hi in (device["layers"] for device in line["devices"])) == 30


def test_a_question_is_answered_on_the_screen_and_nothing_is_left(program):
    up = program("up", "--ask", "What is a swimming pool?", "--max-tokens", "40")
    up.until("is online")
    processes = up.descendants()
    commands = sorted(
        command.split("poolhouse_node ")[1].split()[0] for command in processes.values()
    )
    assert commands == ["control", "join", "join"]
    assert up.end() == 0
    assert "swimming pool" in up.stdout
    assert "worker-2  layers 20–29" in up.stderr
    assert "40 tokens" in up.stderr
    assert "tok/s" in up.stderr
    assert "torch" in up.stderr
    assert "links: direct (libdatachannel" in up.stderr
    assert not alive(processes)


@pytest.mark.parametrize("rtc", ["libdatachannel", "aiortc"])
def test_a_killed_worker_is_named_and_started_again(program, rtc):
    up = program("up", *LONG_ANSWER, "--rtc", rtc)
    up.until("is online")
    up.until_answering(200)
    os.kill(up.find("--name worker-2"), signal.SIGKILL)
    up.until("worker-2 was killed (signal 9); started again", timeout_s=8)
    up.until("worker-2 stopped responding", timeout_s=20)
    up.until("The chain is whole again", timeout_s=30)
    up.until_answering(len(up.stdout) + 100)
    processes = up.descendants()
    assert len(processes) == 3
    up.interrupt()
    assert up.end() == 130
    assert not alive(processes)


@pytest.mark.parametrize(
    "moment", ["first child", "worker-1 joined", "loaded", "is online", "answering"]
)
def test_ctrl_c_leaves_no_process_behind(program, moment):
    up = program("up", *LONG_ANSWER)
    if moment == "answering":
        up.until_answering()
    elif moment == "first child":
        up.until_children()
    else:
        up.until(moment)
    processes = up.descendants()
    up.interrupt()
    assert up.end(timeout_s=20) == 130
    assert "Traceback" not in up.stderr
    assert not alive(processes)


def test_a_killed_parent_takes_its_children_along(program):
    up = program("up", *LONG_ANSWER)
    up.until_answering()
    processes = up.descendants()
    assert len(processes) == 3
    up.process.kill()
    assert not alive(processes, within_s=20)


def test_json_of_a_broken_answer_says_so(program, tmp_path):
    prompt = tmp_path / "prompt.txt"
    prompt.write_text("water " * 6000, encoding="utf-8")
    up = program("up", "--devices", "2", "--raw", str(prompt), "--json")
    assert up.end() == 1
    assert "the room's context holds" in up.json()["error"]
