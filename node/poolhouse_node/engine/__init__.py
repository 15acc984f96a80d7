"""Compute in torch: one model part on one device. Import is slow (torch): import late."""

from poolhouse_node.engine.devices import fair_threads, pick_device, set_threads
from poolhouse_node.engine.loading import load_shard
from poolhouse_node.engine.tensors import LoadCancelled
from poolhouse_node.engine.torch_shard import TorchShard

__all__ = [
    "LoadCancelled",
    "TorchShard",
    "fair_threads",
    "load_shard",
    "pick_device",
    "set_threads",
]
