"""A folder with safetensors, config.json and tokenizer.json as the model of a room."""

import re

import numpy as np
import pytest

from poolhouse_node.cli.loading import EngineLoader, open_model
from poolhouse_node.engine import load_shard
from poolhouse_node.generate.tokenizer import TokenizerError
from poolhouse_node.weights.cache import ModelCache
from poolhouse_node.weights.errors import WeightsError
from poolhouse_node.weights.source import ModelStore
from tests.support.hub_folder import SHAPE, write_hub_folder
from tests.support.model_reference import reference_logits

QUESTION = "What is a swimming pool?"


@pytest.fixture
def store(tmp_path):
    return ModelStore(ModelCache(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path):
    write_hub_folder(tmp_path / "my-model")
    return tmp_path / "my-model"


def room_model(store, folder):
    return open_model(store.resolve(str(folder)), None, EngineLoader(store, "cpu"))


def test_a_room_on_it_computes_what_the_reference_computes(store, folder):
    """From the question's text to logits, the model as another device of the room finds it."""
    model = room_model(store, folder)
    assert (model.label, model.needs.layers, model.context_size) == ("my-model", 8, 2048)
    assert model.tokenizer.speaks_chatml
    ids = model.tokenizer.encode(QUESTION)
    path = store.resolve_for_room(model.key).path
    shard = load_shard(path, (0, 8), context_size=64, host=True, device="cpu")
    ours = shard.logits(shard.run(shard.embed(ids), 0)).numpy()
    assert np.abs(ours - reference_logits(SHAPE, tuple(ids))).max() < 1e-3
    shard.close()


def test_a_folder_of_links_to_nameless_files_is_a_folder(store, folder, tmp_path):
    """So lie models in the cache of the hub's own program."""
    blobs, linked = tmp_path / "blobs", tmp_path / "snapshot"
    blobs.mkdir()
    linked.mkdir()
    for number, file in enumerate(folder.iterdir()):
        file.rename(blobs / str(number))
        (linked / file.name).symlink_to(blobs / str(number))
    key = room_model(store, linked).key
    assert store.resolve_for_room(key).path == linked / "model.safetensors"
    assert store.resolve_for_room(key).label == "snapshot"


def test_of_several_files_the_first_is_found(store, tmp_path):
    for number in (2, 1, 3):
        (tmp_path / f"model-{number:05}-of-00003.safetensors").write_bytes(b"x")
    assert store.resolve(str(tmp_path)).path.name == "model-00001-of-00003.safetensors"


def test_a_folder_without_a_model_is_a_sentence(store, tmp_path):
    with pytest.raises(WeightsError, match=re.escape(f"{tmp_path} does not hold a model")):
        store.resolve(str(tmp_path))


def test_without_its_tokenizer_it_is_no_model_of_a_room(store, folder):
    (folder / "tokenizer.json").unlink()
    with pytest.raises(TokenizerError, match=r"needs .*tokenizer\.json"):
        room_model(store, folder)


def test_a_tokenizer_of_another_model_is_noticed(store, tmp_path):
    write_hub_folder(tmp_path / "mixed", SHAPE.but(vocabulary_size=300))
    with pytest.raises(TokenizerError, match=r"\d+ tokens, but its model only 300"):
        room_model(store, tmp_path / "mixed")
