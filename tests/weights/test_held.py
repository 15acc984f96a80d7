"""What tensors take in memory, by precision."""

import pytest

from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.gguf_header import TensorInfo
from poolhouse_node.weights.held import held_bytes


def tensor(kind: GgmlType, *shape: int, name: str = "blk.0.ffn_up.weight") -> TensorInfo:
    return TensorInfo(name=name, type=kind, shape=shape, offset=0, size_bytes=77)


@pytest.mark.parametrize(
    ("info", "exact", "on_cpu", "on_gpu"),
    [
        (tensor(GgmlType.Q4_0, 64, 32), 8192, 1536, 1152),
        (tensor(GgmlType.Q4_1, 64, 32), 8192, 1536, 1280),
        (tensor(GgmlType.Q8_0, 64, 32), 8192, 2304, 2176),
        (tensor(GgmlType.Q5_0, 64, 32), 8192, 2304, 2176),
        (tensor(GgmlType.Q4_K, 64, 256), 65536, 12288, 17408),
        (tensor(GgmlType.Q5_K, 64, 256), 65536, 20480, 17408),
        (tensor(GgmlType.Q6_K, 64, 256), 65536, 20480, 17408),
        (tensor(GgmlType.F16, 64, 32), 8192, 4096, 4096),
        (tensor(GgmlType.F32, 64, 32), 8192, 8192, 2176),
        (tensor(GgmlType.F16, 64), 256, 256, 256),
        (tensor(GgmlType.Q4_0, 64, 32, name="token_embd.weight"), 8192, 1536, 1152),
        (tensor(GgmlType.F32, 64, 32, name="blk.3.ffn_gate_inp.weight"), 8192, 8192, 8192),
        (tensor(GgmlType.F32, 64, 4, name="blk.3.ssm_conv1d.weight"), 1024, 1024, 1024),
    ],
)
def test_bytes_are_those_of_how_they_are_held(info, exact, on_cpu, on_gpu):
    assert held_bytes(info, "float32") == exact
    assert held_bytes(info, "cpu-packed") == on_cpu
    assert held_bytes(info, "gpu-packed") == on_gpu
    assert held_bytes(info, "file") == 77
