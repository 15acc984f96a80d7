"""BinaryPack (wire, section 3): every vector, the format's edges, and bytes from nowhere."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.wire.binarypack import MAX_DEPTH, MAX_VALUES, pack, unpack
from poolhouse_node.wire.errors import WireError
from tests.support import wire_vectors as vectors

VECTORS = vectors.load("binarypack.json")
NAN = float("nan")

# Faults of the JavaScript encoder: it takes logarithms, and miscounts just below powers of two.
# The bytes on the left are what a right encoder writes instead.
ENCODER_FAULTS = {
    "double 1048575.9999999999": "cb412fffffffffffff",
    "double 5e-324": "cb0000000000000001",
}
# Faults of the JavaScript decoder on bytes of its own encoder: 64-bit integers go through doubles.
DECODER_FAULTS_IN_ENCODE = {
    "int -2147483649",
    "int -5000000000",
    "int -9007199254740991",
    *ENCODER_FAULTS,
}
# What the JavaScript decoder makes of floats that its own encoder never writes, and what they are.
DECODER_FAULTS = {
    "float32 zero reads as 2^-127": 0.0,
    "float32 inf reads as 2^128": math.inf,
    "float32 nan reads as 1.5*2^128": NAN,
    "double zero reads as 2^-1023": 0.0,
    "double -0 reads as -2^-1023": -0.0,
    "double nan reads as infinity": NAN,
    "double subnormal 5e-324": 5e-324,
}
# The JavaScript decoder reads past the end; page 02 wants a broken message.
READS_PAST_THE_END = {"empty input", "truncated array: missing items are undefined"}


def by_name(cases: list[dict]) -> list:
    return [pytest.param(case, id=case["name"]) for case in cases]


@pytest.mark.parametrize("case", by_name(VECTORS["encode"]))
def test_encodes_as_the_vector(case: dict) -> None:
    packed = pack(vectors.value(case["value"]))
    if case["name"] in ENCODER_FAULTS:
        assert packed.hex() == ENCODER_FAULTS[case["name"]]
        assert packed.hex() != case["hex"]
    elif "hex" in case:
        assert packed.hex() == case["hex"]
    else:
        assert len(packed) == case["length"]
        assert packed[:8].hex() == case["head"]
        assert vectors.sha256(packed) == case["sha256"]


@pytest.mark.parametrize("case", by_name(VECTORS["encode"]))
def test_reads_back_what_it_wrote(case: dict) -> None:
    value = vectors.value(case["value"])
    faulty = case["name"] in DECODER_FAULTS_IN_ENCODE
    expected = vectors.value(case["decodes_to"]) if "decodes_to" in case and not faulty else value
    assert vectors.same(unpack(pack(value)), expected)


@pytest.mark.parametrize("value", [math.inf, -math.inf, 2.0**80, 2**64, -(2**63) - 1, 1e300])
def test_refuses_numbers_outside_64_bits(value: float) -> None:
    with pytest.raises(WireError):
        pack(value)


@pytest.mark.parametrize("value", [object(), {1: 2}, {None: 1}, {1, 2}, len, [b"", object()]])
def test_refuses_what_the_format_cannot_say(value: object) -> None:
    with pytest.raises(WireError):
        pack(value)


def test_special_values_of_the_vectors() -> None:
    hexes = {case["name"]: case.get("hex") for case in VECTORS["encode_special"]}
    refused = {case["name"] for case in VECTORS["encode_special"] if case["refused"]}
    assert pack(NAN).hex() == hexes["NaN"]
    assert pack(-(2.0**63)).hex() == hexes["-2^63"]
    assert {"infinity", "-infinity", "2^80", "-2^64", "1e300"} <= refused
    # The JavaScript encoder wraps these two around (decision 6).
    assert pack(2**63).hex() == "cf8000000000000000" != hexes["2^63"]
    assert pack(2**64 - 1).hex() == "cfffffffffffffffff"


@pytest.mark.parametrize("case", by_name(VECTORS["decode"]))
def test_decodes_as_the_vector(case: dict) -> None:
    data = bytes.fromhex(case["hex"])
    name = case["name"]
    if case.get("error") or name in READS_PAST_THE_END:
        with pytest.raises(WireError):
            unpack(data)
    elif name in DECODER_FAULTS:
        right = unpack(data)
        assert vectors.same(right, DECODER_FAULTS[name])
        assert math.copysign(1, right) == math.copysign(1, DECODER_FAULTS[name])
    else:
        assert vectors.same(unpack(data), vectors.value(case["value"]))


def test_every_exception_is_in_the_vectors() -> None:
    """A list of exceptions must not outlive its cases."""
    encoded = {case["name"] for case in VECTORS["encode"]}
    decoded = {case["name"] for case in VECTORS["decode"]}
    assert encoded >= DECODER_FAULTS_IN_ENCODE
    assert decoded >= set(DECODER_FAULTS) | READS_PAST_THE_END


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (np.int64(-7), -7),
        (np.uint8(200), 200),
        (np.float32(0.5), 0.5),
        (np.float64(3.0), 3),
        (np.bool_(True), True),
        ((1, 2), [1, 2]),
        (bytearray(b"ab"), b"ab"),
        (memoryview(b"abcd")[::2], b"ac"),
        (np.array([[1, 2], [3, 4]], dtype=np.uint16).T, b"\x01\0\x03\0\x02\0\x04\0"),
        (np.array([1], dtype=">u2"), b"\x01\0"),
    ],
)
def test_takes_what_callers_hold(value: object, plain: object) -> None:
    assert vectors.same(unpack(pack(value)), plain)


def test_lone_surrogates_become_replacement_characters() -> None:
    """As TextEncoder of a browser does it; a pair becomes the character it stands for."""
    assert unpack(pack("a\ud83db")) == "a\ufffdb"
    assert unpack(pack("\ud83d\ude00")) == "\U0001f600"


@pytest.mark.parametrize("width", ["01", "cc01", "cd0001", "ce00000001", "cf0000000000000001"])
def test_takes_any_width_of_a_number(width: str) -> None:
    assert unpack(bytes.fromhex(width)) == 1


def test_bytes_read_are_their_own() -> None:
    """The message may be thrown away or overwritten."""
    data = bytearray(pack(b"hello"))
    value = unpack(data)
    data[:] = bytes(len(data))
    assert value == b"hello"


@pytest.mark.parametrize("opening", [b"\x91", b"\x81\xb1a"])
def test_depth_is_limited_both_ways(opening: bytes) -> None:
    assert unpack(opening * MAX_DEPTH + b"\x01")
    with pytest.raises(WireError, match="deep"):
        unpack(opening * (MAX_DEPTH + 1) + b"\x01")
    value: object = 1
    for _ in range(MAX_DEPTH):
        value = [value]
    assert unpack(pack(value)) == value
    with pytest.raises(WireError, match="deep"):
        pack([value])


@pytest.mark.parametrize("opening", ["dd7fffffff", "df7fffffff", "dbffffffff", "d9ffffffff"])
def test_a_count_is_checked_before_anything_is_made_for_it(opening: str) -> None:
    tracemalloc.start()
    with pytest.raises(WireError):
        unpack(bytes.fromhex(opening) + bytes(1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 100_000


def test_the_number_of_values_is_limited() -> None:
    """One-byte maps would otherwise take seventy times the message."""
    count = MAX_VALUES + 1
    with pytest.raises(WireError, match="values"):
        unpack(b"\xdd" + count.to_bytes(4, "big") + b"\x80" * count)


@pytest.mark.parametrize("data", ["b1ff", "d80001c3", "8101b161", "8190b161", "ddb0", "d8", "da00"])
def test_refuses_broken_bytes(data: str) -> None:
    with pytest.raises(WireError):
        unpack(bytes.fromhex(data))


_numbers = st.integers(-(2**63), 2**64 - 1) | st.floats(
    allow_nan=False, allow_infinity=False
).filter(lambda number: not number.is_integer())
_leaves = st.none() | st.booleans() | _numbers | st.text(max_size=40) | st.binary(max_size=40)
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=20), inner),
    max_leaves=60,
)


@given(_values)
def test_round_trip(value: object) -> None:
    assert vectors.same(unpack(pack(value)), value)


@given(_values, st.binary(max_size=20))
def test_trailing_bytes_are_ignored(value: object, after: bytes) -> None:
    assert vectors.same(unpack(memoryview(pack(value) + after)), value)


@given(_values, st.data())
def test_a_value_cut_short_is_an_error(value: object, data: st.DataObject) -> None:
    packed = pack(value)
    with pytest.raises(WireError):
        unpack(packed[: data.draw(st.integers(0, len(packed) - 1))])


@settings(max_examples=500)
@given(st.binary(max_size=400))
def test_random_bytes_raise_only_our_error(data: bytes) -> None:
    _unpack_or_refuse(data)


@settings(max_examples=300)
@given(_values, st.data())
def test_mutated_bytes_raise_only_our_error(value: object, data: st.DataObject) -> None:
    packed = bytearray(pack(value))
    for _ in range(data.draw(st.integers(1, 4))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    _unpack_or_refuse(bytes(packed))


def _unpack_or_refuse(data: bytes) -> None:
    try:
        value = unpack(data)
    except WireError:
        return
    _size_is_bounded(value, len(data))


def _size_is_bounded(value: object, message_bytes: int) -> None:
    """No value is made of more items or bytes than the message had."""
    if isinstance(value, str | bytes | list | dict):
        assert len(value) <= message_bytes
    for item in (
        value if isinstance(value, list) else value.values() if isinstance(value, dict) else ()
    ):
        _size_is_bounded(item, message_bytes)
