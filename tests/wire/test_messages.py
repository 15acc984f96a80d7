"""Typed messages: the pages' examples, both ways; JavaScript's habits; nonsense."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.wire.binarypack import pack, unpack
from poolhouse_node.wire.chunks import MAX_MESSAGE_BYTES
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.messages import MESSAGE_TYPES, Message, parse, to_map
from poolhouse_node.wire.messages.asking import (
    Ask,
    ContextUse,
    GenerationDone,
    GenerationStart,
    History,
    Token,
    Visibility,
)
from poolhouse_node.wire.messages.joining import (
    Admit,
    Auth,
    Bye,
    Died,
    Hello,
    Member,
    Mesh,
    Ping,
    Roster,
)
from poolhouse_node.wire.messages.loading import (
    ErrorReport,
    Inventory,
    LinkLost,
    Load,
    Offload,
    RangePart,
    Ready,
    ReadyAll,
)
from tests.support import wire_vectors as vectors
from tests.support.wire_messages import FULL

NONCE = "A" * 22


def test_there_is_a_full_message_of_every_type() -> None:
    assert sorted(message["t"] for message in FULL) == sorted(MESSAGE_TYPES)


@pytest.mark.parametrize("message", FULL, ids=lambda message: message["t"])
def test_a_full_message_survives_in_its_order(message: dict[str, Any]) -> None:
    struct = parse(unpack(pack(message)))
    assert type(struct) is MESSAGE_TYPES[message["t"]]
    assert struct is not None
    again = to_map(struct)
    assert list(again) == list(message)
    assert pack(again) == pack(message)


@pytest.mark.parametrize("message", FULL, ids=lambda message: message["t"])
def test_every_field_of_the_full_message_is_read(message: dict[str, Any]) -> None:
    fields = {field.encode_name for field in msgspec.structs.fields(MESSAGE_TYPES[message["t"]])}
    assert fields == set(message) - {"t"}


@pytest.mark.parametrize("message", FULL, ids=lambda message: message["t"])
def test_unknown_fields_are_ignored_and_null_is_absent(message: dict[str, Any]) -> None:
    struct = MESSAGE_TYPES[message["t"]]
    required = {f.encode_name for f in msgspec.structs.fields(struct) if f.required}
    least = {name: value for name, value in message.items() if name == "t" or name in required}
    nulls = dict.fromkeys(set(message) - set(least))
    assert parse(least | {"unknown": [1]}) == parse(least)
    assert parse(least | nulls) == parse(least)


@pytest.mark.parametrize("message", FULL, ids=lambda message: message["t"])
def test_a_missing_field_is_our_error(message: dict[str, Any]) -> None:
    struct = MESSAGE_TYPES[message["t"]]
    for field in msgspec.structs.fields(struct):
        if field.required:
            with pytest.raises(WireError, match=message["t"]):
                parse({name: value for name, value in message.items() if name != field.encode_name})


@pytest.mark.parametrize("message", [{}, {"t": 5}, {"t": None}, {"t": "ai-code-x"}, {"t": []}])
def test_what_we_do_not_act_on_is_nothing(message: dict[str, Any]) -> None:
    assert parse(message) is None


def test_whole_numbers_may_come_as_floats() -> None:
    message = {"t": "ai-load", "model": "m", "range": [0.0, 9.0], "next": "host", "host": "h"}
    assert parse(message | {"ctx": 2048.0}) == Load(
        model="m", range=(0, 9), next="host", host="h", ctx=2048
    )
    assert parse({"t": "pledge", "gb": 5}) == parse({"t": "pledge", "gb": 5.0})


def test_flags_may_be_numbers_or_booleans_and_go_out_as_numbers() -> None:
    for closed in (1, True, 1.0):
        bye = parse({"t": "bye", "reason": "", "closed": closed})
        assert isinstance(bye, Bye)
        assert bye.closed
        assert pack(to_map(bye)) == pack({"t": "bye", "closed": 1})


def test_the_vectors_of_the_handshake() -> None:
    packed = {
        case["name"]: case["hex"]
        for case in vectors.load("binarypack.json")["encode"]
        if "hex" in case
    }
    assert pack(to_map(Mesh(v=1, none=1))).hex() == packed["mesh"]
    assert pack(to_map(Auth(v=1, hn=NONCE))).hex() == packed["auth"]
    assert pack(to_map(Ping(ts=2500))).hex() == packed["ping int"]
    assert pack(to_map(Bye(reason="no", closed=1))).hex() == packed["bye"]
    hello = unpack(bytes.fromhex(packed["hello"]))
    struct = parse(hello)
    assert isinstance(struct, Hello)
    assert struct.meta["gpu"] == "apple metal-3"
    assert hello.pop("died") is None  # the page writes what it does not have; we do not
    assert pack(to_map(struct)) == pack(hello)


# ---- hello: an odd one is a device of another kind, not a broken link ------------------------


@pytest.mark.parametrize(
    ("v", "version"),
    [(4, 4), (4.0, 4), (None, 1), ("4", 4), (0, 0), (999_999, 999_999)]
    + [(odd, -1) for odd in (-1, 1.5, 1_000_000, [], "four", float("nan"), float("inf"))],
)
def test_versions_of_a_hello(v: object, version: int) -> None:
    hello = parse({"t": "hello", "name": "x", "v": v})
    assert isinstance(hello, Hello)
    assert hello.v == version


def test_fields_that_are_not_what_they_should_be_count_as_missing() -> None:
    odd = {"name": [], "meta": [1], "auth": None, "jc": 5, "pid": "x" * 65, "died": 3, "pass": 1}
    assert parse({"t": "hello", "v": 4, "join": 1} | odd) == Hello(v=4, join=1)


def test_meta_that_cannot_be_sent_on_is_left_out() -> None:
    """The host packs it into the roster of everyone."""
    deep: list = []
    for _ in range(9):
        deep = [deep]
    odd = {"gbps": float("inf"), "deep": deep, "long": "x" * 5000, "k" * 5000: 1, "big": 2**64}
    hello = parse({"t": "hello", "meta": odd | {"ua": "Mac", "kept": [{"a": 1}]}})
    assert isinstance(hello, Hello)
    assert hello.meta == {"ua": "Mac", "kept": [{"a": 1}]}


def test_meta_is_bounded_as_a_whole() -> None:
    """256 devices with the most to say still fit one roster."""
    hello = parse({"t": "hello", "meta": {f"key {i}": "x" * 1000 for i in range(60)} | {"ua": 1}})
    assert isinstance(hello, Hello)
    assert list(hello.meta) == [
        "key 0",
        "key 1",
        "key 2",
        "key 3",
        "key 4",
        "key 5",
        "key 6",
        "key 7",
        "ua",
    ]
    member = Member(id="i" * 128, name="n" * 40, meta=dict(hello.meta))
    assert len(pack(to_map(Roster(members=[member] * 256)))) < MAX_MESSAGE_BYTES


@pytest.mark.parametrize("name", ["otter", "", None, 42, 4.5])
def test_names_are_left_to_the_room(name: object) -> None:
    hello = parse({"t": "hello", "name": name})
    assert isinstance(hello, Hello)
    assert hello.name == name


@pytest.mark.parametrize("case", vectors.load("auth.json")["speaks"], ids=str)
def test_what_the_proofs_need_comes_through(case: dict) -> None:
    hello = parse({"t": "hello"} | case["hello"])
    assert isinstance(hello, Hello)
    jc = hello.jc or ""
    speaks = (hello.auth or 0) >= 1 and len(jc) == 64 and set(jc) <= set("0123456789abcdef")
    assert speaks is case["speaks_proofs"]


# ---- what a receiver would keep is bounded ----------------------------------------------------


@pytest.mark.parametrize(
    ("message", "field", "length"),
    [
        ({"t": "bye", "reason": "x" * 5000}, "reason", 300),
        ({"t": "ai-error", "message": "x" * 5000}, "message", 1000),
        ({"t": "ai-genstart", "text": "x" * 9000}, "text", 8000),
        ({"t": "hello", "name": "x" * 9000}, "name", 400),
    ],
)
def test_text_for_people_is_cut(message: dict, field: str, length: int) -> None:
    assert len(getattr(parse(message), field)) == length


def test_our_own_text_is_cut_too() -> None:
    assert len(ErrorReport(message="x" * 5000).message) == 1000


@pytest.mark.parametrize(
    "message",
    [
        {"t": "ai-inv", "url": "u", "have": ["0-1"] * 20_001},
        {"t": "ai-inv", "url": "u", "have": ["x" * 41]},
        {"t": "ai-inv", "url": "u" * 2049},
        {"t": "roster", "members": [{"id": "a", "name": "b"}] * 1025},
        {"t": "roster", "members": [{"id": "a" * 129, "name": "b"}]},
        {"t": "roster", "members": [{"name": "b"}]},
        {"t": "roster", "members": "all"},
        {"t": "ai-ready", "slots": [1] * 4097},
        {"t": "ai-ready", "slots": [65536]},
        {"t": "ai-layers", "by": dict.fromkeys(map(str, range(1025)), "0–1")},
        {"t": "ai-layers", "by": {"h": "x" * 257}},
        {"t": "ai-load", "model": "m", "range": [0, -1], "next": "host", "host": "h"},
        {"t": "ai-load", "model": "m", "range": [0, 1, 2], "next": "host", "host": "h"},
        {"t": "ai-load", "model": "m", "range": [0, 1.5], "next": "host", "host": "h"},
        {"t": "ai-progress", "pct": 101},
        {"t": "ai-progress", "pct": float("nan")},
        {"t": "ai-progress", "pct": "42"},
        {"t": "pledge", "gb": -1},
        {"t": "pledge", "gb": float("inf")},
        {"t": "ping", "ts": float("inf")},
        {"t": "ping", "ts": 1e300},
        {"t": "ai-tele", "amax": float("nan")},
        {"t": "ai-tele", "k": {"one": float("inf")}},
        {"t": "ai-visibility", "mode": "nobody"},
        {"t": "ai-wpart", "id": "a", "data": "text"},
        {"t": "ai-wpart", "id": "a", "data": bytes((1 << 20) + 1)},
        {"t": "ai-wget", "id": "a", "url": "u", "lo": 0, "hi": 1 << 60},
        {"t": "ai-history", "items": [{}] * 65},
        {"t": "auth", "hn": "x" * 65},
    ],
    ids=lambda message: str(message)[:60],
)
def test_too_much_of_anything_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        parse(message)


# ---- what a sender leaves out -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "wire"),
    [
        (Hello(name="a", v=4), {"t": "hello", "name": "a", "meta": {}, "v": 4}),
        (Member(id="a", name="b"), {"id": "a", "name": "b", "meta": {}}),
        (Ready(), {"t": "ai-ready", "slots": []}),
        (Inventory(url="u"), {"t": "ai-inv", "url": "u", "have": []}),
        (Roster(members=[]), {"t": "roster", "members": []}),
        (History(), {"t": "ai-history", "items": []}),
        (Admit(), {"t": "admit"}),
        (Token(text="", d=0), {"t": "ai-token", "text": "", "d": 0}),
        (GenerationStart(name="a", cont=0), {"t": "ai-genstart", "name": "a", "cont": 0}),
        (LinkLost(name="a", up=0), {"t": "ai-linklost", "name": "a", "up": 0}),
        (
            ReadyAll(model="m", label="M", ctx=5),
            {"t": "ai-ready-all", "model": "m", "label": "M", "ctx": 5},
        ),
        (Visibility(mode="all"), {"t": "ai-visibility", "mode": "all"}),
        (Ask(text="why"), {"t": "ai-ask", "text": "why"}),
        (
            GenerationDone(ctx=ContextUse(used=1, max=2), failed=False),
            {"t": "ai-gendone", "ctx": {"used": 1, "max": 2}, "failed": 0},
        ),
        (RangePart(id="a", off=0, data=b"x"), {"t": "ai-wpart", "id": "a", "off": 0, "data": b"x"}),
        (Hello(died=Died(loading=True)), {"t": "hello", "meta": {}, "died": {"loading": True}}),
        (
            Offload(lo=1, hi=2, vram_bytes=3, ram_bytes=4),
            {"lo": 1, "hi": 2, "vramBytes": 3, "ramBytes": 4},
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, dict) else "",
)
def test_absent_fields_do_not_travel(message: Message, wire: dict[str, Any]) -> None:
    assert to_map(message) == wire
    assert list(to_map(message)) == list(wire)


# ---- nonsense ---------------------------------------------------------------------------------

_names = sorted(
    {f.encode_name for struct in MESSAGE_TYPES.values() for f in msgspec.structs.fields(struct)}
)
_odd = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.binary(max_size=6),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4)
    ),
    max_leaves=8,
)


@settings(max_examples=400)
@given(st.sampled_from(sorted(MESSAGE_TYPES)), st.dictionaries(st.sampled_from(_names), _odd))
def test_random_fields_raise_only_our_error(t: str, fields: dict[str, Any]) -> None:
    _parse_or_refuse({**fields, "t": t})


@settings(max_examples=400)
@given(st.sampled_from(FULL), st.data())
def test_a_full_message_with_odd_fields_raises_only_our_error(
    message: dict[str, Any], data: st.DataObject
) -> None:
    fields = [name for name in message if name != "t"]
    if fields:
        changed = data.draw(st.dictionaries(st.sampled_from(fields), _odd, min_size=1))
        _parse_or_refuse(message | changed)


@pytest.mark.parametrize(
    "message", [{"t": "auth", "v": 1 << 64, "hn": "x" * 22}, {"t": "mesh", "none": 1 << 64}]
)
def test_a_number_that_could_not_be_sent_on_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(WireError):
        parse(message)


def _parse_or_refuse(message: dict[str, Any]) -> None:
    try:
        struct = parse(message)
    except WireError:
        return
    assert struct is not None
    if not isinstance(struct, Ready | Roster):  # these hold maps that are not sent on
        again = unpack(pack(to_map(struct)))
        assert parse(again) == struct
