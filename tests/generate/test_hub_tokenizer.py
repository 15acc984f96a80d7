"""``tokenizer.json`` beside safetensors, against the libraries that wrote it."""

import json

import pytest
import transformers
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.generate import hub_tokenizer
from poolhouse_node.generate.hub_tokenizer import read_hub_tokenizer
from poolhouse_node.generate.template import ChatTemplate
from poolhouse_node.generate.tokenizer import TokenizerError
from tests.support.hub_folder import SPECIALS, TEMPLATE, USER_DEFINED, train_tokenizer

TEXT = st.text(
    alphabet=st.sampled_from("aebpool WATer'sll12٣\u0301\u093f न你é\n\r\t.,(<|>_\U0001f3ca")
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("hub")
    train_tokenizer().save(str(folder / "tokenizer.json"))
    values = {"eos_token": {"content": "<|im_end|>"}, "chat_template": TEMPLATE}
    (folder / "tokenizer_config.json").write_text(json.dumps(values))
    return folder


@pytest.fixture(scope="module")
def library():
    return train_tokenizer()


@pytest.fixture(scope="module")
def ours(folder):
    return read_hub_tokenizer(folder)


@settings(max_examples=200, deadline=None)
@given(text=TEXT | st.text())
def test_text_is_encoded_and_decoded_as_by_the_library(ours, library, text):
    ids = ours.encode(text)
    assert ids == library.encode(text.encode(errors="replace").decode()).ids
    assert ours.decode(ids) == library.decode(ids, skip_special_tokens=False)


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_special_tokens_are_read_where_they_may_be_and_never_in_plain_text(ours, library, data):
    pieces = st.sampled_from([*SPECIALS, USER_DEFINED]) | TEXT
    text = "".join(data.draw(st.lists(pieces, max_size=6)))
    assert ours.encode_with_specials(text) == library.encode(text, add_special_tokens=False).ids
    assert not set(ours.encode(text)) & set(ours.specials.values())


def test_a_chat_becomes_the_ids_that_transformers_makes_of_it(folder, ours):
    reference = transformers.PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    messages = [{"role": "user", "content": "What is a été?"}]
    reference.chat_template = TEMPLATE
    wanted = reference.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    text = ChatTemplate(ours.chat_template).render(messages, add_generation_prompt=True)
    assert ours.encode_with_specials(text) == wanted


def test_facts(ours, library):
    assert ours.speaks_chatml
    assert set(ours.specials) == {*SPECIALS, USER_DEFINED}
    assert ours.end_ids == {library.token_to_id("<|im_end|>"), library.token_to_id("<|endoftext|>")}
    assert (ours.bos_token, ours.eos_token) == (None, "<|im_end|>")
    assert ours.vocabulary_size == library.get_vocab_size()


@pytest.fixture
def copy(folder, tmp_path):
    """The folder, to be changed."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())

    def change(**changes):
        path = tmp_path / "tokenizer.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | changes))
        return tmp_path

    return change


def test_everything_but_the_tokenizer_may_be_missing(copy):
    folder = copy()
    (folder / "tokenizer_config.json").unlink()
    tokenizer = read_hub_tokenizer(folder)
    assert tokenizer.chat_template is None
    assert len(tokenizer.end_ids) == 2


@pytest.mark.parametrize(("said", "added"), [(7, {7}), ([7, 9], {7, 9}), (None, set())])
def test_ends_come_from_the_generation_configuration_too(copy, ours, said, added):
    folder = copy()
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": said}))
    assert read_hub_tokenizer(folder).end_ids == ours.end_ids | added


def test_a_template_in_a_file_of_its_own_counts_first(copy):
    folder = copy()
    (folder / "chat_template.jinja").write_text("own")
    assert read_hub_tokenizer(folder).chat_template == "own"


@pytest.mark.parametrize(("name", "found"), [("default", "x"), ("tool_use", None)])
def test_of_several_templates_the_default_one_is_taken(copy, name, found):
    folder = copy()
    config = {"chat_template": [{"name": name, "template": "x"}]}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    assert read_hub_tokenizer(folder).chat_template == found


STRIPS = [{"id": 3, "content": "<x>", "rstrip": True}]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"pre_tokenizer": None}, "no byte-level BPE"),
        ({"pre_tokenizer": {"type": "Metaspace"}}, "no byte-level BPE"),
        ({"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}, "is not sound"),
        ({"model": {"type": "WordPiece", "vocab": {"a": 0}}}, "no byte-level BPE"),
        ({"model": {"type": "BPE", "vocab": {}, "merges": []}, "added_tokens": []}, "no tokens"),
        ({"model": {"type": "BPE", "vocab": {"a": -1}, "merges": []}}, "no tokens"),
        ({"model": {"type": "BPE", "vocab": {"a": 1 << 40}, "merges": []}}, "no tokens"),
        ({"model": {"type": "BPE", "vocab": {"a": 1}, "merges": ["a q"]}}, "cannot be used"),
        ({"added_tokens": STRIPS}, "space around '<x>'"),
        ({"added_tokens": 7}, "is not sound"),
    ],
)
def test_what_cannot_be_used_is_a_sentence(copy, changes, sentence):
    with pytest.raises(TokenizerError, match=sentence):
        read_hub_tokenizer(copy(**changes))


def test_a_missing_or_endless_file_is_a_sentence(copy, tmp_path, monkeypatch):
    with pytest.raises(TokenizerError, match=r"needs .*tokenizer\.json"):
        read_hub_tokenizer(tmp_path / "nowhere")
    monkeypatch.setattr(hub_tokenizer, "MAX_TOKENIZER_BYTES", 100)
    with pytest.raises(TokenizerError, match="too long"):
        read_hub_tokenizer(copy())


@settings(max_examples=100, deadline=None)
@given(
    st.binary(max_size=200)
    | st.recursive(st.none() | st.text() | st.integers(), st.lists).map(
        lambda values: json.dumps({"model": values, "added_tokens": values}).encode()
    )
)
def test_any_bytes_are_a_tokenizer_or_a_sentence(tmp_path_factory, text):
    folder = tmp_path_factory.getbasetemp() / "any"
    folder.mkdir(exist_ok=True)
    (folder / "tokenizer.json").write_bytes(text)
    with pytest.raises(TokenizerError):
        read_hub_tokenizer(folder)
