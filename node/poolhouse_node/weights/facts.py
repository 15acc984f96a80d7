"""What a model file says about itself, as far as a deal and a screen need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.weights.errors import ModelFileError
from poolhouse_node.weights.held import AS_IN_THE_FILE, Held
from poolhouse_node.weights.sizes import DealSizes

if TYPE_CHECKING:
    from poolhouse_node.weights.gguf import GgufFile

__all__ = ["ModelFacts", "read_facts"]

_EMBEDDING, _OUTPUT = "token_embd.weight", "output.weight"


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Read from a GGUF header."""

    architecture: str
    name: str
    """As its makers call it; may be empty."""
    layers: int
    width: int
    vocabulary_size: int
    trained_context: int
    """Positions it was trained for; 0 when the file does not say."""
    sizes: DealSizes

    def layer_bytes(self, context_size: int) -> int:
        """One layer with its state, for the deal."""
        return self.sizes.layer_bytes(context_size)

    @property
    def host_bytes(self) -> int:
        """What the host holds besides its layers, for the deal."""
        return self.sizes.host_bytes


def read_facts(file: GgufFile, held: Held = AS_IN_THE_FILE) -> ModelFacts:
    """Facts of a model. Raises :class:`ModelFileError` when the header lacks one.

    ``held`` tells how many bytes a tensor takes in memory.
    """
    architecture = file.architecture
    draft_blocks = file.integer(f"{architecture}.nextn_predict_layers", 0)
    layers = file.integer(f"{architecture}.block_count") - draft_blocks
    embedding = file.tensors.get(_EMBEDDING)
    if layers < 1 or embedding is None or len(embedding.shape) != 2:
        sentence = f"{file.path.name} has no layers or no embedding: it is no language model."
        raise ModelFileError(sentence)
    output = file.tensors.get(_OUTPUT)
    interval = _attention_interval(file, architecture)
    return ModelFacts(
        architecture=architecture,
        name=file.text("general.name", ""),
        layers=layers,
        width=file.integer(f"{architecture}.embedding_length"),
        vocabulary_size=embedding.shape[0],
        trained_context=file.integer(f"{architecture}.context_length", 0),
        sizes=DealSizes(
            layer=_mean_layer_bytes(file, min(interval, layers), held),
            kv_position=2 * _kv_width(file, architecture) * held.key_value_bytes // interval,
            kv_position_q8=None,
            embedding=held.tensor_bytes(embedding),
            output=held.tensor_bytes(output) if output else 0,
            draft_block=_layer_bytes(file, layers, held) if draft_blocks else 0,
        ),
    )


def _attention_interval(file: GgufFile, architecture: str) -> int:
    """Hybrid models attend in one layer of so many; others in every one."""
    hybrid = f"{architecture}.ssm.state_size" in file.metadata
    return max(1, file.integer(f"{architecture}.full_attention_interval", 4)) if hybrid else 1


def _mean_layer_bytes(file: GgufFile, layers: int, held: Held) -> int:
    """Of the first ``layers``: those of a hybrid model take turns, so one is not like another."""
    return sum(_layer_bytes(file, layer, held) for layer in range(layers)) // layers


def _layer_bytes(file: GgufFile, layer: int, held: Held) -> int:
    prefix = f"blk.{layer}."
    return sum(
        held.tensor_bytes(info) for name, info in file.tensors.items() if name.startswith(prefix)
    )


def _kv_width(file: GgufFile, architecture: str) -> int:
    heads = file.integer(f"{architecture}.attention.head_count")
    if heads < 1:
        raise ModelFileError(f"{file.path.name} says it has no attention heads.")
    kv_heads = file.integer(f"{architecture}.attention.head_count_kv", heads)
    head_size = file.integer(f"{architecture}.embedding_length") // heads
    return kv_heads * file.integer(f"{architecture}.attention.key_length", head_size)
