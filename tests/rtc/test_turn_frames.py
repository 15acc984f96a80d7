"""TURN messages on datagrams and on streams."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.rtc import stun
from poolhouse_node.rtc.stun import Attribute, Message, MessageClass, Method
from poolhouse_node.rtc.turn_frames import (
    allocate_transaction,
    frame_for_stream,
    framing_of,
    granted_transaction,
)

TRANSACTION = bytes(range(12))


def stun_message(method=Method.ALLOCATE, kind=MessageClass.REQUEST, data=b""):
    attributes = ((Attribute.DATA, data),) if data else ()
    return stun.encode(Message(method, kind, TRANSACTION, attributes))


def channel_data(data: bytes, channel: int = 0x4001) -> bytes:
    return channel.to_bytes(2, "big") + len(data).to_bytes(2, "big") + data


@given(st.binary(max_size=100))
def test_a_stun_message_goes_as_it_is(data):
    message = stun_message(data=data)
    assert frame_for_stream(message) == message
    assert framing_of(message[:4]).message == len(message)


@given(st.binary(max_size=100))
def test_channel_data_is_padded_on_a_stream(data):
    message = channel_data(data)
    framed = frame_for_stream(message)
    assert len(framed) % 4 == 0
    assert framed.startswith(message)
    assert not any(framed[len(message) :])
    framing = framing_of(framed[:4])
    assert (framing.message, framing.message + framing.padding) == (len(message), len(framed))
    assert frame_for_stream(framed) == framed, "a datagram may be padded as well"


@pytest.mark.parametrize(
    "noise",
    [
        b"",
        b"\x00",
        b"\x00\x01\x00\x00",
        stun_message()[:-1],
        stun_message() + b"x",
        b"\x00\x01\x00\x00" + bytes(16),  # no cookie
        b"\x00\x01\x00\x02" + stun_message()[4:8] + bytes(14),  # not a multiple of four
        channel_data(b"abc")[:-1],
        channel_data(b"abc") + b"xy",
        bytes([0x80]) + os.urandom(40),
        bytes([0xC0]) + os.urandom(40),
    ],
    ids=range(11),
)
def test_noise_is_no_message(noise):
    assert frame_for_stream(noise) is None


@given(st.binary(max_size=60))
def test_any_datagram_is_a_whole_message_or_none(datagram):
    framed = frame_for_stream(datagram)
    if framed is not None:
        framing = framing_of(framed[:4])
        assert framing.message + framing.padding == len(framed)


def test_requests_for_an_allocation_and_what_grants_them():
    asked = stun_message()
    granted = stun_message(kind=MessageClass.SUCCESS)
    assert allocate_transaction(asked) == granted_transaction(granted) == TRANSACTION
    assert allocate_transaction(granted) is None
    assert granted_transaction(asked) is None
    assert granted_transaction(stun_message(kind=MessageClass.ERROR)) is None
    assert allocate_transaction(stun_message(Method.REFRESH)) is None
