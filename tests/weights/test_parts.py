"""GGUF models in several files."""

import numpy as np
import pytest

from poolhouse_node.weights.errors import GgufError, ModelFileError
from poolhouse_node.weights.gguf import open_gguf
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES

MAKER = ModelMaker(SMALL_SHAPES["qwen3"].but(layers=2))
NAMES = list(MAKER.shape.tensors())


@pytest.mark.parametrize("parts", [2, 3])
def test_several_files_are_one_model(tmp_path, parts):
    with open_gguf(MAKER.write_split(tmp_path, parts)) as file:
        assert list(file.tensors) == NAMES
        assert {info.part for info in file.tensors.values()} == set(range(parts))
        assert file.architecture == "qwen3"
        for name in NAMES:
            assert np.array_equal(file.tensor_data(name), MAKER.raw(name))


def rewrite(path, names=None, **metadata):
    writer = MAKER.writer(names)
    writer.metadata = metadata
    writer.write(path)


def part(number):
    return {"split.no": number, "split.count": 2, "split.tensors.count": len(NAMES)}


def keys(**changes):
    return {**part(1), **{f"split.{key}": value for key, value in changes.items()}}


BROKEN = {
    "a part is missing": lambda second: second.unlink(),
    "a part is no GGUF": lambda second: second.write_bytes(b"PK" * 50),
    "a part is cut short": lambda second: second.write_bytes(second.read_bytes()[:-40]),
    "a part of another model": lambda second: rewrite(second, NAMES[-3:], **keys(count=3)),
    "the same number twice": lambda second: rewrite(second, NAMES[-3:], **keys(no=0)),
    "a number that is a text": lambda second: rewrite(second, NAMES[-3:], **keys(no="1")),
    "tensors twice": lambda second: rewrite(second, **part(1)),
    "tensors missing": lambda second: rewrite(second, NAMES[-1:], **part(1)),
}
SENTENCES = {
    "a part is missing": "cannot be opened",
    "a part is no GGUF": "00002-of-00002.gguf cannot be used. This is not a GGUF file",
    "a part is cut short": "cut short",
    "a part of another model": "Part 2 of the model's files belongs to another model",
    "the same number twice": "Part 2 of the model's files belongs to another model",
    "a number that is a text": "'split.no' of the model file is not a whole number",
    "tensors twice": "Two of the model's files hold the tensor",
    "tensors missing": "do not hold as many tensors",
}


@pytest.mark.parametrize("fault", BROKEN)
def test_parts_that_do_not_fit_are_told_in_a_sentence(tmp_path, fault):
    first = MAKER.write_split(tmp_path, 2)
    BROKEN[fault](first.with_name("model-00002-of-00002.gguf"))
    with pytest.raises(GgufError, match=SENTENCES[fault]):
        open_gguf(first)


def test_the_first_file_has_to_be_named(tmp_path):
    first = MAKER.write_split(tmp_path, 2)
    with pytest.raises(GgufError, match="name the first"):
        open_gguf(first.with_name("model-00002-of-00002.gguf"))
    with pytest.raises(ModelFileError, match=r"named like model-00001-of-00002\.gguf"):
        open_gguf(first.rename(tmp_path / "mine.gguf"))


@pytest.mark.parametrize("count", [-1, 1001, 1 << 31])
def test_an_absurd_number_of_files_is_refused_before_any_is_looked_for(tmp_path, count):
    path = tmp_path / "model-00001-of-00002.gguf"
    rewrite(path, **{"split.count": count})
    with pytest.raises(GgufError, match=r"is in -?\d+ files"):
        open_gguf(path)
