"""A folder with safetensors and tokenizer.json as the model of a room of real processes."""

import pytest

from poolhouse_node.generate.hub_tokenizer import read_hub_tokenizer
from tests.support.hub_folder import SHAPE, write_hub_folder
from tests.support.model_reference import reference_logits
from tests.support.program import run

pytestmark = [pytest.mark.room, pytest.mark.webrtc, pytest.mark.timeout(180)]

TOKENS = 6


def test_a_room_of_two_answers_as_the_reference(tmp_path):
    folder, prompt = tmp_path / "my-model", tmp_path / "prompt.txt"
    write_hub_folder(folder)
    prompt.write_text("<|im_start|>user\nWhat is a pool?<|im_end|>\n", encoding="utf-8")
    ended = run(
        *("up", "--devices", "2", "--model", str(folder), "--raw", str(prompt), "--json"),
        *("--split", "4,4", "--temperature", "0", "--max-tokens", str(TOKENS)),
        timeout_s=150,
    )
    assert ended.process.returncode == 0, ended.stderr
    said = ended.json()
    tokenizer = read_hub_tokenizer(folder)
    ids = tokenizer.encode_with_specials(prompt.read_text(encoding="utf-8"))
    assert said["prompt_tokens"] == len(ids)
    greedy: list[int] = []
    while len(greedy) < TOKENS and not set(greedy) & tokenizer.end_ids:
        greedy.append(int(reference_logits(SHAPE, (*ids, *greedy))[-1].argmax()))
    assert said["token_ids"][: len(greedy)] == greedy
