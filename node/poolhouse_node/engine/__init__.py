"""Compute in torch: one model part on one device. Import is slow (torch): import late."""

import os

# OpenMP reads this once, when torch is first imported, and this package is the only door to torch.
# Threads that wait must sleep: by default they spin, and beside other work on the machine one
# spinning thread waits for a descheduled one (measured on two busy cores: 5 to 10 times slower).
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

from poolhouse_node.engine.devices import pick_device, set_threads
from poolhouse_node.engine.loading import PartShelf, load_shard
from poolhouse_node.engine.precision import choose_precision
from poolhouse_node.engine.tensors import LoadCancelled
from poolhouse_node.engine.torch_shard import TorchShard

__all__ = [
    "LoadCancelled",
    "PartShelf",
    "TorchShard",
    "choose_precision",
    "load_shard",
    "pick_device",
    "set_threads",
]
