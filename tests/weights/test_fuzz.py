"""Model files changed at random: a sentence or a sound header, and never more memory than the file.

The short form runs with every test run; `make test-long` takes some hundred times as many files.
"""

import random
import struct
import tracemalloc
from math import prod

import pytest

from poolhouse_node.weights.errors import ModelFileError
from poolhouse_node.weights.ggml_types import BLOCKS
from poolhouse_node.weights.gguf_header import LazyArray, parse_header
from poolhouse_node.weights.safetensors_header import parse_safetensors
from tests.support.model_maker import ModelMaker
from tests.support.model_shapes import SMALL_SHAPES

LONG = [pytest.mark.long, pytest.mark.timeout(1200)]
SHORT_FILES = 300
ROUNDS = [
    pytest.param(SHORT_FILES, id="short"),
    pytest.param(500 * SHORT_FILES, id="long", marks=LONG),
]
MOST_BYTES, BYTES_FOR_A_BYTE = 1 << 15, 16
"""What reading may take in memory: an entry of some 60 bytes becomes a few small objects."""
NUMBERS = [0, 1, 8, 9, 255, 1 << 16, (1 << 31) - 1, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1]


def gguf_of(name: str) -> bytes:
    writer = ModelMaker(SMALL_SHAPES[name].but(layers=4)).writer()
    writer.metadata["tokenizer.ggml.tokens"] = [f"token{number}" for number in range(40)]
    writer.metadata["tokenizer.ggml.scores"] = [float(number) for number in range(40)]
    data = writer.build()
    return data[: parse_header(data).data_start]


def safetensors_of() -> bytes:
    entries = ",".join(
        f'"model.layers.{number}.x":{{"dtype":"BF16","shape":[4,8],'
        f'"data_offsets":[{64 * number},{64 * number + 64}]}}'
        for number in range(20)
    )
    text = f'{{"__metadata__":{{"format":"pt"}},{entries}}}'.encode()
    return struct.pack("<Q", len(text)) + text


def changed(data: bytes, chance: random.Random) -> bytes:
    """A few faults: other bytes, absurd numbers, pieces that are cut out, doubled or moved."""
    out = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        at = chance.randrange(len(out)) if out else 0
        match chance.randrange(6):
            case 0:
                out[at : at + 1] = chance.randbytes(1)
            case 1:
                out[at : at + 8] = struct.pack("<Q", chance.choice(NUMBERS))
            case 2:
                out[at : at + 4] = struct.pack("<I", chance.choice(NUMBERS) & 0xFFFFFFFF)
            case 3:
                del out[at : at + chance.randint(1, 64)]
            case 4:
                out[at:at] = out[at : at + chance.randint(1, 64)]
            case 5:
                del out[at:]
    return bytes(out)


def read_gguf(data: bytes, file_size: int) -> None:
    header = parse_header(data, file_size=file_size)
    for info in header.tensors.values():
        assert header.data_start <= info.offset <= file_size - info.size_bytes
        block = BLOCKS[info.type]
        assert info.size_bytes == prod(info.shape) // block.values * block.size_bytes
    for value in header.metadata.values():
        if isinstance(value, LazyArray):
            assert len(value.values) == value.count


def read_safetensors(data: bytes, file_size: int) -> None:
    end = 0
    for info in parse_safetensors(data, file_size=file_size):
        assert end <= info.offset <= file_size - info.size_bytes
        assert info.size_bytes == prod(info.shape) * BLOCKS[info.type].size_bytes
        end = info.offset + info.size_bytes


def refusal_of(read, data: bytes, room: int) -> str | None:
    try:
        read(data, room)
    except ModelFileError as error:
        return str(error)
    return None


CASES = {
    **{name: (lambda name=name: gguf_of(name), read_gguf) for name in SMALL_SHAPES},
    "safetensors": (safetensors_of, read_safetensors),
}


@pytest.mark.parametrize("files", ROUNDS)
@pytest.mark.parametrize("name", CASES)
def test_a_changed_header_is_read_or_refused_within_its_size(name, files):
    make, read = CASES[name]
    sound, told = make(), 0
    room = len(sound) + (1 << 24)
    read(sound, room)
    for seed in range(files // len(CASES)):
        data = changed(sound, random.Random(seed))
        tracemalloc.start()
        refusal = refusal_of(read, data, room)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < MOST_BYTES + BYTES_FOR_A_BYTE * len(data), seed
        if refusal is not None:
            told += 1
            assert refusal.endswith("."), seed
    assert told > files // len(CASES) // 4
