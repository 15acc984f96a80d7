"""Text of frames to values and back (signaling, 1.3 and 3)."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_control.errors import BadFrame, FrameError, IgnoredFrame
from poolhouse_control.signaling import messages
from poolhouse_control.signaling.messages import (
    Answer,
    Candidate,
    Heartbeat,
    Leave,
    Offer,
    parse_connect_params,
    parse_frame,
)

json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("name", "struct"),
    [("OFFER", Offer), ("ANSWER", Answer), ("CANDIDATE", Candidate), ("LEAVE", Leave)],
)
def test_relayable_types_are_told_apart(name: str, struct: type) -> None:
    message = parse_frame(json.dumps({"type": name, "dst": "B", "payload": {"a": 1}}))
    assert type(message) is struct
    assert message.dst == "B"
    assert message.kind == name


def test_a_heartbeat_may_carry_anything() -> None:
    assert parse_frame('{"type":"HEARTBEAT","payload":[1],"x":2}') == Heartbeat()


def test_a_binary_frame_is_read_as_text() -> None:
    assert parse_frame(b'{"type":"HEARTBEAT"}') == Heartbeat()


@pytest.mark.parametrize(
    "frame",
    [
        "{}",
        " \n{}",
        '{"type":"OPEN"}',
        '{"type":"ERROR","payload":{"msg":"x"}}',
        '{"type":"ID-TAKEN"}',
        '{"type":"EXPIRE","dst":"B"}',
        '{"type":5}',
        '{"type":null}',
        '{"type":["OFFER"]}',
        '{"dst":"B"}',
        '{"type":"OFFER","dst":{"a":1}}',
        '{"type":"OFFER","dst":["B"]}',
        '{"type":"OFFER","dst":7}',
        '{"type":"offer","dst":"B"}',
    ],
)
def test_objects_that_ask_nothing_are_ignored(frame: str) -> None:
    """Signaling, 4.1 rule 4 and 5.4: a client cannot speak as the server."""
    with pytest.raises(IgnoredFrame):
        parse_frame(frame)


@pytest.mark.parametrize(
    "frame",
    [
        "",
        "null",
        "5",
        '"OFFER"',
        "[]",
        "[{}]",
        "{",
        "not json",
        '{"type":"OFFER","dst":"B","payload":}',
        '{"type":"OFFER","dst":"B","payload":01}',
        '{"type":"OFFER","dst":"B","payload":"\x01"}',
        '{"type":"OFFER","dst":"B","payload":[}]}',
        '{"type":"HEARTBEAT"} x',
        '{"type":"OFFER","dst":"B","payload":' + "[" * 50_000 + "]" * 50_000 + "}",
        "\ud800",
        b"\xff",
        b'{"type":"OFFER","dst":"B","payload":"\xff"}',
        b"\x00",
    ],
    ids=lambda frame: repr(frame[:40]),
)
def test_what_is_not_a_json_object_is_bad(frame: str | bytes) -> None:
    with pytest.raises(BadFrame):
        parse_frame(frame)


def test_a_relayed_message_has_the_true_src_and_only_known_members() -> None:
    """Signaling, 3.3."""
    message = parse_frame(
        '{"payload":{"b" : [1e400, 12345678901234567890]},"src":"liar","x":1,'
        '"dst":"B","type":"OFFER"}'
    )
    assert isinstance(message, Offer)
    text = messages.relay_text(message, src="A", dst="B")
    assert text == (
        '{"type":"OFFER","src":"A","dst":"B","payload":{"b" : [1e400, 12345678901234567890]}}'
    )


def test_an_absent_payload_stays_absent() -> None:
    message = parse_frame('{"type":"CANDIDATE","dst":"B"}')
    assert isinstance(message, Candidate)
    assert messages.relay_text(message, src="A", dst="B") == (
        '{"type":"CANDIDATE","src":"A","dst":"B"}'
    )


def test_server_messages_have_the_shapes_clients_read() -> None:
    """Signaling, 3.2."""
    assert messages.OPEN_TEXT == '{"type":"OPEN"}'
    assert messages.ID_TAKEN_TEXT == '{"type":"ID-TAKEN","payload":{"msg":"ID is taken"}}'
    assert messages.error_text('a "b"') == '{"type":"ERROR","payload":{"msg":"a \\"b\\""}}'
    assert messages.expire_text(src="Z", dst="A") == '{"type":"EXPIRE","src":"Z","dst":"A"}'


@given(payload=json_values)
def test_payload_text_is_relayed_byte_for_byte(payload: object) -> None:
    raw = json.dumps(payload)
    if "\\ud" in raw:
        return  # lone surrogates are refused by the reader
    message = parse_frame('{"type":"ANSWER","dst":"B","payload":' + raw + "}")
    assert isinstance(message, Answer)
    text = messages.relay_text(message, src="A", dst="B")
    assert text == '{"type":"ANSWER","src":"A","dst":"B","payload":' + raw + "}"


@given(frame=st.binary(max_size=200) | st.text(max_size=200))
def test_random_frames_raise_only_our_own_error(frame: bytes | str) -> None:
    try:
        message = parse_frame(frame)
    except FrameError:
        return
    assert isinstance(message, Heartbeat | Offer | Answer | Candidate | Leave)


FRAME = (
    '{"type":"OFFER","dst":"B","payload":{"sdp":{"type":"offer","sdp":"v=0"},"x":[1,2.5e3,null]}}'
)


@given(data=st.data())
def test_mutated_frames_never_change_who_speaks(data: st.DataObject) -> None:
    """What is relayed is JSON with the true sender: no payload breaks out of its place."""
    frame = list(FRAME)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(frame) - 1))
        piece = data.draw(
            st.sampled_from(['"', "}", "{", "]", "[", ",", ":", "\\", '"src":"Z",', "0", ""])
            | st.characters(exclude_categories=["Cs"])
        )
        frame[at] = piece
    try:
        message = parse_frame("".join(frame))
    except FrameError:
        return
    if isinstance(message, Heartbeat):
        return
    relayed = json.loads(messages.relay_text(message, src="A", dst="B"))
    assert relayed["src"] == "A"
    assert relayed["dst"] == "B"
    assert set(relayed) <= {"type", "src", "dst", "payload"}


@pytest.mark.parametrize(
    ("peer_id", "legal"),
    [
        ("A", True),
        ("pooled-room-7KQ2M", True),
        ("a b_c-d", True),
        ("5a3c9c1e-2d6b-4a7b-9d0e-1f2a3b4c5d6e", True),
        ("x" * 128, True),
        ("x" * 129, False),
        ("", False),
        ("-a", False),
        ("a-", False),
        ("a--b", False),
        ("a  b", False),
        ("a\n", False),
        ("a/b", False),
        ("é", False),
        ("<b>", False),
        ("٣", False),
    ],
)
def test_id_rule(peer_id: str, legal: bool) -> None:
    assert messages.is_peer_id(peer_id) is legal


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        (b"key=peerjs&id=A&token=t&version=1.5.5", ("peerjs", "A", "t")),
        (b"id=A&id=B&key=peerjs&token=t", ("peerjs", "B", "t")),
        (b"id=a%20b&key=k&token=%00", ("k", "a b", "\0")),
        (b"id=&key=&token=", ("", "", "")),
        (b"", ("", "", "")),
        (b"%%%&&=&id", ("", "", "")),
        (b"&".join(b"a=%d" % n for n in range(100)) + b"&id=A", ("", "", "")),
        (b"id=%ff&key=\xff&token=t", ("ÿ", "\ufffd", "t")),
    ],
)
def test_socket_queries(query: bytes, expected: tuple[str, str, str]) -> None:
    params = parse_connect_params(query)
    assert (params.key, params.peer_id, params.token) == expected


@given(query=st.binary(max_size=300))
def test_any_query_gives_params(query: bytes) -> None:
    params = parse_connect_params(query, origin="https://a")
    assert params.origin == "https://a"


def test_params_never_show_their_token() -> None:
    assert "sesame" not in repr(parse_connect_params(b"id=A&token=sesame&key=k"))
