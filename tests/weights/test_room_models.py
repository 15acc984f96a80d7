"""What another device may make this one open."""

from dataclasses import replace

import pytest

from poolhouse_node.weights.cache import ModelCache
from poolhouse_node.weights.catalogue import CATALOGUE
from poolhouse_node.weights.errors import UnknownModel, WeightsError
from poolhouse_node.weights.source import ModelStore


@pytest.fixture
def store(tmp_path) -> ModelStore:
    return ModelStore(ModelCache(tmp_path / "cache"), hub="http://127.0.0.1:1")


@pytest.mark.parametrize("name", ["http://127.0.0.1:1/x.gguf", "https://example.org/x", "~/x"])
def test_no_address_of_somebody_elses(store, name):
    with pytest.raises(UnknownModel):
        store.resolve_for_room(name)


def test_no_path_of_somebody_elses(store, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("of mine")
    for name in (str(secret), f"../{secret.name}"):
        with pytest.raises(UnknownModel):
            store.resolve_for_room(name)


def test_a_file_that_was_seen_here_is_found_by_its_key(store, tmp_path):
    file = tmp_path / "own.gguf"
    file.write_bytes(b"own" * 100)
    key = store.resolve(str(file)).key
    assert store.resolve_for_room(key).path == file
    with pytest.raises(WeightsError):
        store.resolve_for_room("file-0123456789ab")


def test_a_model_that_cannot_be_computed_is_not_even_fetched(store, monkeypatch):
    row = replace(CATALOGUE["qwen3-4b"], key="later", computable=False)
    monkeypatch.setitem(CATALOGUE, "later", row)
    with pytest.raises(WeightsError, match="cannot compute"):
        store.resolve_for_room("later")
