"""Compute in torch: one model part on one device. Import is slow (torch): import late."""

import os

# OpenMP reads these once, when torch is first imported, and this package is the only door to torch.
# Threads that wait must sleep: by default they spin, and beside other work on the machine one
# spinning thread waits for a descheduled one (measured on two busy cores: 5 to 10 times slower).
# They look a few microseconds for the next piece of work first, or a token of packed weights, with
# its hundreds of short products, takes twice as long.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("GOMP_SPINCOUNT", "2000")

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
