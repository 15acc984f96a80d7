"""Messages in pieces (wire, section 3, "Chunks")."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.wire.binarypack import pack, unpack
from poolhouse_node.wire.chunks import (
    CHUNK_BYTES,
    MAX_ASSEMBLING,
    MAX_MESSAGE_BYTES,
    Assembler,
    Chunker,
    is_chunk,
    is_close_request,
)
from poolhouse_node.wire.errors import WireError
from tests.support import wire_vectors as vectors

CASES = vectors.load("binarypack.json")["chunking"]


def piece(number: Any = 1, n: Any = 0, total: Any = 2, data: Any = b"x") -> dict[str, Any]:
    return {"__peerData": number, "n": n, "data": data, "total": total}


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in CASES])
def test_cuts_as_the_vector(case: dict) -> None:
    packed = pack(vectors.value(case["value"]))
    messages = Chunker(next_number=case.get("message_id", 1)).split(packed)
    if "hex" in case:
        assert packed.hex() == case["hex"]
    if not case.get("chunked"):
        assert messages == [packed]
        return
    assert len(packed) == case["packed_length"]
    assert vectors.sha256(packed) == case["packed_sha256"]
    assert len(messages) == len(case["chunks"])
    for message, expected in zip(messages, case["chunks"], strict=True):
        assert len(message) == expected["length"]
        assert message[:40].hex() == expected["head"]
        assert message[-8:].hex() == expected["tail"]
        assert vectors.sha256(message) == expected["sha256"]


def test_numbers_count_only_messages_that_were_cut() -> None:
    chunker = Chunker()
    chunker.split(bytes(10))
    assert unpack(chunker.split(bytes(CHUNK_BYTES + 1))[0])["__peerData"] == 1
    chunker.split(bytes(CHUNK_BYTES))
    assert unpack(chunker.split(bytes(CHUNK_BYTES + 1))[0])["__peerData"] == 2


def test_refuses_to_cut_what_peers_would_drop() -> None:
    assert len(Chunker().split(bytes(MAX_MESSAGE_BYTES))) == 256
    with pytest.raises(WireError):
        Chunker().split(bytes(MAX_MESSAGE_BYTES + 1))


@given(
    st.lists(st.integers(CHUNK_BYTES + 1, 5 * CHUNK_BYTES), min_size=1, max_size=4), st.randoms()
)
def test_any_order_with_copies_gives_the_messages(sizes: list[int], random: Any) -> None:
    chunker, assembler = Chunker(), Assembler()
    packed = [bytes([n]) * size for n, size in enumerate(sizes)]
    pieces = [unpack(cut) for message in packed for cut in chunker.split(message)]
    random.shuffle(pieces)
    joined = [whole for one in pieces if (whole := assembler.feed(one)) is not None]
    assert sorted(joined) == sorted(packed)
    assert (assembler.assembling, assembler.held_bytes, assembler.dropped) == (0, 0, 0)


def test_a_second_copy_of_a_piece_is_ignored() -> None:
    assembler = Assembler()
    assembler.feed(piece(n=0, data=b"a"))
    assert assembler.feed(piece(n=0, data=b"z")) is None
    assert assembler.dropped == 1
    assert assembler.feed(piece(n=1, data=b"b")) == b"ab"


def test_a_message_of_one_piece() -> None:
    assert Assembler().feed(piece(total=1, data=b"all")) == b"all"


@pytest.mark.parametrize(
    "bad",
    [
        piece(total=0),
        piece(total=257),
        piece(n=2),
        piece(n=-1),
        piece(n=0.5),
        piece(total="2"),
        piece(number="x"),
        piece(number={"type": "close"}),
        piece(data="text"),
        piece(data=None),
        piece(data=bytes(CHUNK_BYTES + 1)),
        {"__peerData": 1},
    ],
    ids=str,
)
def test_a_piece_that_breaks_a_guard_is_dropped(bad: dict[str, Any]) -> None:
    assembler = Assembler()
    assert assembler.feed(bad) is None
    assert (assembler.dropped, assembler.assembling) == (1, 0)


def test_pieces_must_agree_on_their_count() -> None:
    assembler = Assembler()
    assembler.feed(piece(n=0, total=2))
    assembler.feed(piece(n=1, total=3))
    assert assembler.dropped == 1
    assert assembler.feed(piece(n=1, total=2)) == b"xx"


def test_a_ninth_message_is_dropped_until_one_is_whole() -> None:
    assembler = Assembler()
    for number in range(MAX_ASSEMBLING + 1):
        assembler.feed(piece(number))
    assert (assembler.assembling, assembler.dropped) == (MAX_ASSEMBLING, 1)
    assert assembler.feed(piece(0, n=1)) == b"xx"
    assembler.feed(piece(99))
    assert assembler.assembling == MAX_ASSEMBLING


def test_knows_pieces_and_close_requests() -> None:
    close = unpack(bytes.fromhex(CASES[-1]["hex"]))
    assert is_chunk(close)
    assert is_close_request(close)
    assert is_chunk(piece())
    assert not is_close_request(piece())
    for other in ({"t": "ping"}, b"bytes", 5, None, ["__peerData"]):
        assert not is_chunk(other)
        assert not is_close_request(other)


_odd = st.none() | st.integers(-2, 300) | st.floats() | st.binary(max_size=5) | st.text(max_size=3)


@given(st.lists(st.builds(piece, _odd, _odd, _odd, _odd), max_size=60))
def test_nonsense_raises_nothing_and_stays_bounded(pieces: list[dict[str, Any]]) -> None:
    assembler = Assembler()
    for one in pieces:
        assembler.feed(one)
        assert assembler.assembling <= MAX_ASSEMBLING
        assert assembler.held_bytes <= MAX_ASSEMBLING * MAX_MESSAGE_BYTES
