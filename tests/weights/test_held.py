"""What tensors take in memory, by precision."""

import pytest

from poolhouse_node.weights.ggml_types import GgmlType
from poolhouse_node.weights.gguf_header import TensorInfo
from poolhouse_node.weights.held import file_bytes, held_bytes


def tensor(kind: GgmlType, *shape: int, name: str = "blk.0.ffn_up.weight") -> TensorInfo:
    return TensorInfo(name=name, type=kind, shape=shape, offset=0, size_bytes=77)


@pytest.mark.parametrize(
    ("info", "exact", "packed"),
    [
        (tensor(GgmlType.Q4_0, 64, 32), 8192, 1536),
        (tensor(GgmlType.Q4_1, 64, 32), 8192, 1536),
        (tensor(GgmlType.Q8_0, 64, 32), 8192, 2304),
        (tensor(GgmlType.Q5_0, 64, 32), 8192, 2304),
        (tensor(GgmlType.Q4_K, 64, 256), 65536, 12288),
        (tensor(GgmlType.Q5_K, 64, 256), 65536, 20480),
        (tensor(GgmlType.Q6_K, 64, 256), 65536, 20480),
        (tensor(GgmlType.F16, 64, 32), 8192, 4096),
        (tensor(GgmlType.F32, 64, 32), 8192, 8192),
        (tensor(GgmlType.F16, 64), 256, 256),
        (tensor(GgmlType.Q4_0, 64, 32, name="token_embd.weight"), 8192, 1536),
    ],
)
def test_bytes_are_those_of_the_precision(info, exact, packed):
    assert held_bytes(info, is_packed=False) == exact
    assert held_bytes(info, is_packed=True) == packed
    assert file_bytes(info) == 77
