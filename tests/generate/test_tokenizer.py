"""The tokenizer: every row of ``smollm2_tokenizer.json``, streams, refusals."""

import json
import time
import unicodedata

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.generate.tokenizer import (
    _BYTE_OF,
    TextStream,
    Tokenizer,
    TokenizerError,
    _pre_tokenizer,
)
from poolhouse_node.weights.gguf import open_gguf
from poolhouse_node.weights.gguf_header import parse_header
from tests.support.gguf_writer import GgufWriter
from tests.support.model import needs_model, smollm2_path
from tests.support.vectors import vectors

ROWS = vectors("smollm2_tokenizer")["rows"]


@pytest.fixture(scope="module")
def smollm2():
    with open_gguf(smollm2_path()) as file:
        return Tokenizer.from_metadata(file.metadata)


@needs_model
@pytest.mark.parametrize("row", ROWS, ids=[json.dumps(row["text"])[:30] for row in ROWS])
def test_vectors(smollm2, row):
    assert smollm2.encode_with_specials(row["text"]) == row["ids"]
    assert smollm2.decode(row["ids"]) == row["text"]


@needs_model
def test_whole_prompts(smollm2):
    for prompt in vectors("smollm2_greedy")["prompts"].values():
        assert smollm2.encode_with_specials(prompt["text"]) == prompt["prompt_ids"]


@needs_model
def test_facts_of_the_file(smollm2):
    assert set(smollm2.specials.values()) == set(range(17))
    assert smollm2.special_id("<|im_start|>") == 1
    assert smollm2.end_ids == {0, 2}
    assert (smollm2.bos_token, smollm2.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert smollm2.speaks_chatml
    assert smollm2.vocabulary_size == 49_152
    assert "<|im_start|>" in smollm2.chat_template
    with pytest.raises(TokenizerError, match="no token <think>"):
        smollm2.special_id("<think>")


@needs_model
def test_building_takes_less_than_a_second():
    start = time.perf_counter()
    with open_gguf(smollm2_path()) as file:
        Tokenizer.from_metadata(file.metadata)
    assert time.perf_counter() - start < 1.0


@needs_model
@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_plain_text_never_becomes_a_special_token(smollm2, data):
    """Not even text that spells one, in any surroundings."""
    names = st.sampled_from(sorted(smollm2.specials))
    text = "".join(data.draw(st.lists(st.one_of(names, st.text(max_size=5)), max_size=6)))
    ids = smollm2.encode(text)
    assert not set(ids) & set(smollm2.specials.values())
    assert smollm2.decode(ids) == sayable(smollm2, text)


def sayable(tokenizer, text):
    """``text`` without the bytes this vocabulary has no token for (planes nobody writes in)."""
    known = {byte for character, byte in _BYTE_OF.items() if character in tokenizer.tokens}
    assert len(known) == 235
    return bytes(byte for byte in text.encode() if byte in known).decode("utf-8", "replace")


@needs_model
@settings(max_examples=100, deadline=None)
@given(st.text())
def test_text_survives_the_way_there_and_back(smollm2, text):
    assert smollm2.decode(smollm2.encode(text)) == sayable(smollm2, text)


@needs_model
@settings(max_examples=100, deadline=None)
@given(st.text(alphabet="a1 ①٣²½七 \n.,", max_size=30))
def test_numerals_of_any_script_stand_alone(smollm2, text):
    """The trap of the vectors: digits are split before words, beyond ASCII too."""
    for token in smollm2.encode(text):
        spelled = smollm2.token_bytes(token).decode("utf-8", "ignore").strip()
        if any(unicodedata.category(character).startswith("N") for character in spelled):
            assert len(spelled) == 1


@needs_model
@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 49_151), max_size=40))
def test_a_stream_shows_whole_characters_and_loses_none(smollm2, ids):
    stream = TextStream(smollm2)
    pieces = [stream.push(token) for token in ids]
    assert "".join(pieces) + stream.flush() == smollm2.decode(ids)


@needs_model
def test_a_stream_holds_back_half_a_character(smollm2):
    ids = smollm2.encode("\U0001f3ca\u200d\u2640")
    stream = TextStream(smollm2)
    shown = [stream.push(token) for token in ids]
    assert "".join(shown) == "\U0001f3ca\u200d\u2640"
    assert "\ufffd" not in "".join(shown)
    assert "" in shown
    assert [stream.push(ids[0]), stream.flush(), stream.flush()] == ["", "\ufffd", ""]


@needs_model
def test_lone_surrogates_do_no_harm(smollm2):
    assert smollm2.decode(smollm2.encode("a\ud800b")) == "a\ufffdb"


# --- small vocabularies, made here


def metadata(**changes):
    """Bytes and three merges; what the file of a real model would say."""
    letters = [*"abcdefgh123 .", "Ġ", "ab", "abc", "Ġab"]
    tokens = ["<end>", "<|im_start|>", "<think>", *letters]
    values = {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 4] + [1] * len(letters),
        "tokenizer.ggml.merges": ["a b", "ab c", "Ġ ab"],
        "tokenizer.ggml.eos_token_id": 0,
        **changes,
    }
    kept = {key: value for key, value in values.items() if value is not None}
    return parse_header(GgufWriter(kept).build()).metadata


def words(tokenizer, ids):
    return [tokenizer.tokens[token] for token in ids]


def test_a_small_vocabulary():
    tokenizer = Tokenizer.from_metadata(metadata())
    assert words(tokenizer, tokenizer.encode("abc ab abcd")) == ["abc", "Ġab", "Ġ", "abc", "d"]
    assert tokenizer.end_ids == {0}
    assert tokenizer.bos_token is None
    assert not tokenizer.speaks_chatml
    assert tokenizer.chat_template is None


def test_user_defined_tokens_are_special_too():
    """``<think>`` is one in some models: a user must not be able to write it (section 2)."""
    tokenizer = Tokenizer.from_metadata(metadata())
    assert 2 not in tokenizer.encode("a<think>b")
    assert words(tokenizer, tokenizer.encode_with_specials("ab<think>ab<end>")) == [
        "ab",
        "<think>",
        "ab",
        "<end>",
    ]


def test_the_longest_special_token_wins():
    tokens = ["<a>", "<a>b", "a", "b", "ab", "<", ">"]
    kinds = [3, 3, 1, 1, 1, 1, 1]
    tokenizer = Tokenizer.from_metadata(
        metadata(
            **{
                "tokenizer.ggml.tokens": tokens,
                "tokenizer.ggml.token_type": kinds,
                "tokenizer.ggml.merges": ["a b"],
            }
        )
    )
    assert words(tokenizer, tokenizer.encode_with_specials("<a>ab<a>b")) == ["<a>", "ab", "<a>b"]


@pytest.mark.parametrize(
    ("rule", "text", "expected"),
    [
        ("gpt-2", "a12 12", ["a", "12", "Ġ12"]),
        ("default", "a12 12", ["a", "12", "Ġ12"]),
        ("smollm", "a12 12", ["a", "1", "2", "Ġ", "1", "2"]),
        ("qwen2", "a12 12", ["a", "1", "2", "Ġ", "1", "2"]),
        ("gpt-2", "a's\n\n b", ["a", "'s", "ĊĊ", "Ġb"]),
        ("qwen2", "a'S\n\n b", ["a", "'S", "ĊĊ", "Ġb"]),
        ("qwen2", "(ab.\n", ["(ab", ".Ċ"]),
        ("gpt-2", "(ab.\n", ["(", "ab", ".", "Ċ"]),
        ("qwen35", "a12 12", ["a", "1", "2", "Ġ", "1", "2"]),
        ("qwen2", "re\u0301o", ["re", "Ìģo"]),
        ("qwen35", "re\u0301o", ["reÌģo"]),
        ("qwen35", "\u0301.", ["Ìģ", "."]),
    ],
)
def test_splitting_rules(rule, text, expected):
    pieces = [piece for piece, _ in _pre_tokenizer(rule).pre_tokenize_str(text)]
    assert pieces == expected


@settings(max_examples=300, deadline=None)
@given(st.text() | st.text(alphabet="ab'sLL1٣²\u0301\u0940\u200dन你é \t\n\r.,(", max_size=30))
def test_qwen35_splits_as_the_models_own_tokenizer(text):
    """The rule of ``transformers``, which the models were trained with."""
    from transformers.models.qwen3_5.tokenization_qwen3_5 import PRETOKENIZE_REGEX

    theirs = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PRETOKENIZE_REGEX), "isolated")
    bytes_ = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    both = tokenizers.pre_tokenizers.Sequence([theirs, bytes_])
    assert _pre_tokenizer("qwen35").pre_tokenize_str(text) == both.pre_tokenize_str(text)


def test_unknown_ids_have_no_text():
    tokenizer = Tokenizer.from_metadata(metadata())
    assert [tokenizer.token_bytes(token) for token in (-1, 20, 10**9)] == [b"", b"", b""]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tokenizer.ggml.model": "llama"}, "'llama' .* only gpt2"),
        ({"tokenizer.ggml.model": None}, "only gpt2"),
        ({"tokenizer.ggml.pre": "martian"}, "splitting rule 'martian'"),
        ({"tokenizer.ggml.tokens": None}, "no usable tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": [1, 2]}, "no usable tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.merges": None}, "no usable tokenizer.ggml.merges"),
        ({"tokenizer.ggml.merges": ["ab"]}, "not a pair: 'ab'"),
        ({"tokenizer.ggml.merges": ["x y"]}, "merges of this model file do not fit"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(changes, sentence):
    with pytest.raises(TokenizerError, match=sentence):
        Tokenizer.from_metadata(metadata(**changes))


def test_every_byte_has_its_character():
    """The alphabet is the library's own."""
    assert sorted(_BYTE_OF.values()) == list(range(256))
    assert sorted(_BYTE_OF) == sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
