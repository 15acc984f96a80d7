"""Shards on kernels out of model files, also where only Triton's interpreter runs them."""

from pathlib import Path

from poolhouse_node.engine.head import Head
from poolhouse_node.engine.model_part import ModelPart
from poolhouse_node.engine.models import find_architecture
from poolhouse_node.engine.tensors import LoadWatch, TensorLoader
from poolhouse_node.engine.torch_shard import TorchShard
from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.gguf import open_gguf
from tests.support.kernels import DEVICE
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES, ModelShape

from poolhouse_node.engine.kernels.keeper import KernelKeeper  # isort: skip

KERNEL_SHAPES = {
    name: shape.but(head_size=32, kind=GgmlType.Q4_0, draft_blocks=0, delta_size=32)
    for name, shape in SMALL_SHAPES.items()
}
KERNEL_SHAPES["llama"] = KERNEL_SHAPES["llama"].but(rotated=32)
"""The small shapes, with heads that kernels take and weights that stay as they are."""


def make_model(shape: ModelShape, folder: Path) -> Path:
    return ModelMaker(shape).write_gguf(folder / "model.gguf")


def kernel_part(path: Path, *, context_size: int = 64, page_rows: int = 16) -> ModelPart:
    """All layers with the head, on :data:`~tests.support.kernels.DEVICE`."""
    with open_gguf(path) as file:
        architecture = find_architecture(file)
        config = architecture.read_config(file)
        layers = (0, config.layers)
        names = architecture.tensor_names(file, layers) + Head.tensor_names(file)
        watch = LoadWatch(lambda _: None, lambda: False)
        loader = TensorLoader(file, names, DEVICE, watch, KernelKeeper(DEVICE))
        head = Head.load(file, config.width, config.epsilon, loader)
        model = architecture.load(config, layers, loader, context_size=context_size, device=DEVICE)
    return ModelPart(
        layers,
        config.width,
        context_size,
        DEVICE,
        model,
        head,
        precision="packed",
        on_kernels=True,
        page_rows=page_rows,
    )


def kernel_shard(path: Path, **options) -> TorchShard:
    """One room on a part of its own."""
    return TorchShard(kernel_part(path, **options), saved_states=2)
