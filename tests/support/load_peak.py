"""A program of its own that loads a model and tells how far its memory grew meanwhile.

``python -m tests.support.load_peak MODEL LAYERS PRECISION …`` prints JSON. Of a child process alone
the peak is known: that of a process with other tests behind it is theirs.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from poolhouse_node.engine import load_shard
from poolhouse_node.engine.keeping import PackedKeeper
from poolhouse_node.engine.raw_matrix import RawMatrix
from poolhouse_node.weights.ggml_types import GgmlType

__all__ = ["LoadPeak", "measure_loads"]

_CHILD_S = 60


@dataclass(frozen=True, slots=True)
class LoadPeak:
    """What one load took, in bytes."""

    peak: int
    """Growth at the most, without pages of the file, which the system takes back as it likes."""
    held: int
    """Weights, once they are loaded."""


def measure_loads(model: Path, layers: int, precisions: Sequence[str]) -> list[LoadPeak]:
    """Load all of a model in a child process, one time after the other.

    Each must need more than the one before it, or it shows the other's peak.
    """
    arguments = ["-m", __name__, str(model), str(layers), *precisions]
    ended = subprocess.run(
        [sys.executable, *arguments], capture_output=True, check=True, timeout=_CHILD_S
    )
    return [LoadPeak(**each) for each in json.loads(ended.stdout)]


def _status_bytes(field: str) -> int:
    """Of ``/proc/self/status``. What ``getrusage`` tells begins with the parent's peak."""
    (line,) = [
        line
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines()
        if line.startswith(f"{field}:")
    ]
    return int(line.split()[1]) * 1024


def _compile() -> None:
    """What compiling takes is no part of a load: it is done once on a machine."""
    for kind, size_bytes in ((GgmlType.Q4_0, 18), (GgmlType.Q8_0, 34)):
        raw = RawMatrix(torch.zeros(64, size_bytes, dtype=torch.uint8), kind, 32)
        PackedKeeper().matrix([raw])


def _load(model: Path, layers: int, precision: str, before: int) -> LoadPeak:
    shard = load_shard(
        model, (0, layers), context_size=64, host=True, device="cpu", precision=precision
    )
    peak, held = _status_bytes("VmHWM") - before, shard.holding.weights_bytes
    shard.close()
    return LoadPeak(peak - model.stat().st_size, held)


def _main(model: str, layers: str, *precisions: str) -> None:
    torch.set_num_threads(1)
    _compile()
    before = _status_bytes("VmHWM")
    peaks = [_load(Path(model), int(layers), precision, before) for precision in precisions]
    print(json.dumps([asdict(each) for each in peaks]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
