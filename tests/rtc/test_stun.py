"""STUN messages as bytes: round trips, known bytes, and noise."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.rtc import stun
from poolhouse_node.rtc.stun import Attribute, Message, MessageClass, Method

ID = bytes(range(12))
TRANSACTIONS = st.binary(min_size=12, max_size=12)
VALUES = st.binary(max_size=40)
MESSAGES = st.builds(
    Message,
    st.sampled_from(Method).map(int) | st.integers(0, 0xFFF),
    st.sampled_from(MessageClass),
    TRANSACTIONS,
    st.lists(st.tuples(st.integers(0x9000, 0xFFFF), VALUES), max_size=5).map(tuple),
)
KNOWN = bytes.fromhex(
    # The sample request of RFC 5769, 2.1: software, priority, ice-controlled, username,
    # integrity by the password, fingerprint.
    "000100582112a442b7e7a701bc34d686fa87dfae"
    "802200105354554e207465737420636c69656e74"
    "002400046e0001ff"
    "80290008932ff9b151263b36"
    "000600096576746a3a68367659202020"
    "000800149aeaa70cbfd8cb56781ef2b5b2d3f249c1b571a2"
    "80280004e57a3bcf"
)
PASSWORD = b"VOkJxbRl1RmTxUk/WvJxBt"


def test_the_sample_of_the_standard():
    message = stun.decode(KNOWN)
    assert (message.method, message.kind) == (Method.BINDING, MessageClass.REQUEST)
    assert message.get(Attribute.USERNAME) == b"evtj:h6vY"
    assert stun.is_signed(KNOWN, PASSWORD)
    assert not stun.is_signed(KNOWN, b"other")
    checksum = message.get(Attribute.FINGERPRINT)
    assert checksum is not None
    bare = Message(message.method, message.kind, message.transaction, message.attributes[:-2])
    signed = stun.encode(bare, PASSWORD)
    assert len(signed) == len(KNOWN)
    assert stun.is_signed(signed, PASSWORD)


def test_the_key_of_a_user():
    assert stun.long_term_key("user", "realm", "pass").hex() == "8493fbc53ba582fb4c044c456bdc40eb"


@given(MESSAGES, st.none() | st.binary(min_size=1, max_size=16))
def test_round_trip(message, key):
    data = stun.encode(message, key)
    assert stun.message_bytes(data[:20]) == len(data)
    again = stun.decode(data)
    assert (again.method, again.kind) == (message.method, message.kind)
    assert again.transaction == message.transaction
    assert again.attributes[: len(message.attributes)] == message.attributes
    assert again.attributes[-1][0] == Attribute.FINGERPRINT
    assert stun.is_signed(data, key or b"?") is (key is not None)


@given(
    st.ip_addresses().map(lambda address: str(address).partition("%")[0]),
    st.integers(0, 65535),
    TRANSACTIONS,
)
def test_addresses(host, port, transaction):
    value = stun.pack_address((host, port), transaction)
    assert stun.unpack_address(value, transaction) == (host, port)


def test_an_address_written_as_ipv6_stays_one():
    value = stun.pack_address(("::ffff:127.0.0.1", 9), ID)
    assert value[1] == 2
    host, port = stun.unpack_address(value, ID)
    assert (ipaddress.ip_address(host).ipv4_mapped, port) == (ipaddress.ip_address("127.0.0.1"), 9)


@pytest.mark.parametrize("value", [None, b"", b"\0\1\0\0", b"\0\3\0\0abcd", b"\0\1\0\0abcde"])
def test_what_is_no_address(value):
    with pytest.raises(stun.StunError):
        stun.unpack_address(value, ID)


@given(st.binary(max_size=200))
def test_noise_is_an_error_of_ours(data):
    try:
        stun.decode(data)
    except stun.StunError:
        return


@given(MESSAGES, st.data())
def test_a_spoilt_message_is_read_or_refused(message, data):
    spoilt = bytearray(stun.encode(message, b"key"))
    at = data.draw(st.integers(0, len(spoilt) - 1))
    spoilt[at] ^= data.draw(st.integers(1, 255))
    try:
        stun.decode(bytes(spoilt))
    except stun.StunError:
        return
    stun.is_signed(bytes(spoilt), b"key")


@given(MESSAGES, st.integers(0, 400))
def test_a_cut_message_is_refused(message, kept):
    whole = stun.encode(message)
    if kept < len(whole):
        with pytest.raises(stun.StunError):
            stun.decode(whole[:kept])


@given(st.binary(max_size=30))
def test_reasons_are_bounded_and_printable(value):
    message = Message(3, MessageClass.ERROR, ID, ((Attribute.ERROR_CODE, value),))
    code, reason = stun.error_of(message)
    assert 0 <= code <= 7 * 100 + 255
    assert all(char.isprintable() for char in reason)
