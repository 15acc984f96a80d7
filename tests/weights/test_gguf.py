"""GGUF files: what is read, and what is refused."""

import contextlib
import os
import struct
import time

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.weights.errors import GgufError
from poolhouse_node.weights.ggml_types import BLOCKS, GgmlType
from poolhouse_node.weights.gguf import GgufFile, open_gguf
from poolhouse_node.weights.gguf_header import LazyArray, parse_header
from tests.support.gguf_writer import GgufWriter, TinyLlama
from tests.support.model import needs_model, smollm2_path

METADATA = {
    "general.architecture": "llama",
    "a.text": "é",
    "a.flag": True,
    "a.count": 7,
    "a.negative": -7,
    "a.number": 0.5,
    "an.array.of.texts": ["one", "zwei", "三"],
    "an.array.of.numbers": [1, -2, 3],
    "an.array.of.floats": [0.5, 1.5],
}


def small_writer(**knobs):
    writer = GgufWriter(metadata=dict(METADATA), **knobs)
    writer.add("first", np.arange(64, dtype=np.float32).reshape(2, 32), GgmlType.Q8_0)
    writer.add("second", np.arange(6, dtype=np.float32).reshape(2, 3))
    return writer


SMALL = small_writer().build()


def test_metadata_is_read_and_arrays_wait_until_asked():
    metadata = parse_header(SMALL).metadata
    arrays = {key: value for key, value in metadata.items() if isinstance(value, LazyArray)}
    seen = {key: list(arrays[key].values) if key in arrays else metadata[key] for key in METADATA}
    assert seen == METADATA
    assert {key: len(value) for key, value in arrays.items()} == {
        "an.array.of.texts": 3,
        "an.array.of.numbers": 3,
        "an.array.of.floats": 2,
    }


def test_tensor_shapes_are_rows_first_and_data_is_a_view(tmp_path):
    with open_gguf(small_writer().write(tmp_path / "small.gguf")) as file:
        info = file.tensors["second"]
        assert (info.type, info.shape, info.size_bytes) == (GgmlType.F32, (2, 3), 24)
        data = file.tensor_data("second")
        assert not data.flags.owndata
        assert data.view("<f4").tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("alignment", [8, 32, 256])
def test_alignment_of_the_file_is_honoured(tmp_path, alignment):
    writer = small_writer(alignment=alignment)
    writer.metadata["general.alignment"] = alignment
    with open_gguf(writer.write(tmp_path / "aligned.gguf")) as file:
        assert file.header.data_start % alignment == 0
        assert file.tensor_data("second").view("<f4").tolist() == [0, 1, 2, 3, 4, 5]


def test_typed_getters_check_what_they_give():
    file = GgufFile(None, None, parse_header(SMALL))
    assert (file.architecture, file.integer("a.count"), file.number("a.count")) == ("llama", 7, 7.0)
    assert file.text("missing", "x") == "x"
    for call in (
        lambda: file.text("a.count"),
        lambda: file.integer("a.negative"),
        lambda: file.integer("a.flag"),
        lambda: file.number("a.text"),
        lambda: file.integer("missing"),
    ):
        with pytest.raises(GgufError, match="model file"):
            call()


def replaced(data: bytes, old: bytes, new: bytes) -> bytes:
    assert data.count(old) == 1
    return data.replace(old, new)


def tensor_entry(name: str, dimensions: list[int], kind: int, offset: int) -> bytes:
    encoded = name.encode()
    return (
        struct.pack("<Q", len(encoded))
        + encoded
        + struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
        + struct.pack("<IQ", kind, offset)
    )


SECOND = tensor_entry("second", [3, 2], GgmlType.F32, 96)
BROKEN = {
    "empty": (b"", "is empty"),
    "another kind of file": (b"PK\3\4" + SMALL[4:], "not a GGUF file"),
    "version 1": (small_writer(version=1).build(), "version 1"),
    "version 99": (small_writer(version=99).build(), "version 99"),
    "big-endian": (small_writer(version=3 << 24).build(), "big-endian"),
    "ends in the preamble": (SMALL[:20], "cut short"),
    "ends in the metadata": (SMALL[:100], "cut short"),
    "ends in the tensor list": (SMALL[: SMALL.index(SECOND) + 10], "cut short"),
    "ends in the data": (SMALL[:-16], "'second' ends at byte"),
    "absurd tensor count": (SMALL[:8] + b"\xff" * 8 + SMALL[16:], "speaks of"),
    "absurd metadata count": (SMALL[:16] + b"\xff" * 8 + SMALL[24:], "speaks of"),
    "unknown tensor type": (
        replaced(SMALL, SECOND, tensor_entry("second", [3, 2], 77, 96)),
        "type 77",
    ),
    "no dimensions": (
        replaced(SMALL, SECOND, SECOND[:14] + struct.pack("<I", 0) + SECOND[18:]),
        "0 dimensions",
    ),
    "five dimensions": (
        replaced(SMALL, SECOND, SECOND[:14] + struct.pack("<I", 5) + SECOND[18:]),
        "5 dimensions",
    ),
    "absurd shape": (
        replaced(SMALL, SECOND, tensor_entry("second", [1 << 62, 1 << 62], 0, 96)),
        "absurd shape",
    ),
    "rows of half a block": (
        replaced(SMALL, SECOND, tensor_entry("second", [3, 2], GgmlType.Q4_0, 96)),
        "multiple of 32",
    ),
    "a tensor off the alignment": (
        replaced(SMALL, SECOND, tensor_entry("second", [3, 2], 0, 97)),
        "not aligned to 32",
    ),
    "a tensor past the end": (
        replaced(SMALL, SECOND, tensor_entry("second", [3, 2], 0, 1 << 40)),
        "cut short",
    ),
}


@pytest.mark.parametrize(
    ("data", "sentence"), [pytest.param(*case, id=name) for name, case in BROKEN.items()]
)
def test_broken_files_are_refused_with_a_sentence(tmp_path, data, sentence):
    path = tmp_path / "broken.gguf"
    path.write_bytes(data)
    with pytest.raises(GgufError, match=sentence) as caught:
        open_gguf(path)
    assert "broken.gguf" in str(caught.value)


def test_impossible_alignments_are_refused():
    for alignment in (0, 3, 1 << 20):
        writer = small_writer()
        writer.metadata["general.alignment"] = alignment
        with pytest.raises(GgufError, match="impossible alignment"):
            parse_header(writer.build())


def test_names_must_be_unique():
    writer = GgufWriter(metadata={"aaaa": 1, "bbbb": 2})
    with pytest.raises(GgufError, match="metadata key 'aaaa' twice"):
        parse_header(writer.build().replace(b"bbbb", b"aaaa"))
    writer = GgufWriter()
    writer.add("aaaa", np.zeros(1))
    writer.add("bbbb", np.zeros(1))
    with pytest.raises(GgufError, match="tensor 'aaaa' twice"):
        parse_header(writer.build().replace(b"bbbb", b"aaaa"))


def test_a_cut_header_says_that_more_would_help():
    """A reader by range asks for a longer prefix only then (dealing, section 8)."""
    with pytest.raises(GgufError) as cut:
        parse_header(SMALL[:100])
    with pytest.raises(GgufError) as bad:
        parse_header(b"XXXX" + SMALL[4:])
    assert (cut.value.truncated, bad.value.truncated) == (True, False)
    whole = parse_header(SMALL)
    assert parse_header(SMALL[: whole.data_start]).tensors == whole.tensors


def test_a_file_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(GgufError, match="cannot be opened: No such file"):
        open_gguf(tmp_path / "none.gguf")


def test_closing_frees_the_descriptor_and_views_outlive_it(tmp_path):
    path = small_writer().write(tmp_path / "small.gguf")
    before = set(os.listdir("/proc/self/fd"))
    file = open_gguf(path)
    view = file.tensor_data("second")
    text = file.metadata["an.array.of.texts"]
    file.close()
    file.close()
    assert view.view("<f4")[5] == 5
    with pytest.raises(GgufError, match="closed"):
        file.tensor_data("second")
    del view, text, file
    for _ in range(50):
        open_gguf(path).close()
    assert set(os.listdir("/proc/self/fd")) == before


def test_an_array_asked_for_after_closing_is_a_sentence(tmp_path):
    file = open_gguf(small_writer().write(tmp_path / "small.gguf"))
    file.close()
    with pytest.raises(GgufError, match="closed before"):
        _ = file.metadata["an.array.of.texts"].values


def test_a_broken_file_leaves_no_descriptor_open(tmp_path):
    path = tmp_path / "broken.gguf"
    path.write_bytes(SMALL[:-16])
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(GgufError):
        open_gguf(path)
    assert set(os.listdir("/proc/self/fd")) == before


HEADER_END = SMALL.index(SECOND) + len(SECOND)


@settings(max_examples=400, deadline=None)
@given(st.lists(st.tuples(st.integers(0, HEADER_END - 1), st.integers(0, 255)), max_size=8))
def test_mutated_headers_raise_only_our_error(changes):
    data = bytearray(SMALL)
    for at, byte in changes:
        data[at] = byte
    try:
        header = parse_header(bytes(data), file_size=len(data))
    except GgufError:
        return
    for info in header.tensors.values():
        assert info.offset + info.size_bytes <= len(data)
    for value in header.metadata.values():
        if isinstance(value, LazyArray):
            assert len(value.values) == len(value)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200))
def test_random_bytes_raise_only_our_error(tail):
    for data in (tail, SMALL[:24] + tail, SMALL[:60] + tail):
        with contextlib.suppress(GgufError):
            parse_header(data, file_size=len(data))


@pytest.mark.parametrize("kind", BLOCKS, ids=lambda kind: kind.name)
def test_block_sizes_agree_with_the_reference_package(kind):
    sizes = gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(kind.value)]
    assert (BLOCKS[kind].values, BLOCKS[kind].size_bytes) == sizes
    assert gguf.GGMLQuantizationType(kind.value).name == kind.name


def test_agrees_with_the_reference_reader_on_a_tiny_model(tmp_path):
    path = TinyLlama(kind=GgmlType.Q4_0, tied=False).write(tmp_path / "tiny.gguf")
    assert_same_as_reference(path)


@needs_model
def test_smollm2_opens_fast_and_as_the_reference_reads_it():
    path = smollm2_path()
    start = time.perf_counter()
    with open_gguf(path) as file:
        elapsed_s = time.perf_counter() - start
        assert (len(file.tensors), file.header.data_start) == (272, 1_785_664)
        assert len(file.metadata["tokenizer.ggml.merges"].values) == 48_900
    assert elapsed_s < 0.5
    assert_same_as_reference(path)


def assert_same_as_reference(path):
    reference = gguf.GGUFReader(path)
    with open_gguf(path) as file:
        assert set(file.tensors) == {tensor.name for tensor in reference.tensors}
        for tensor in reference.tensors:
            info = file.tensors[tensor.name]
            assert info.type.value == tensor.tensor_type.value
            assert info.shape == tuple(int(size) for size in reversed(tensor.shape))
            assert (info.offset, info.size_bytes) == (tensor.data_offset, tensor.n_bytes)
        for key, value in file.metadata.items():
            if not isinstance(value, LazyArray):
                assert reference.fields[key].contents() == value
