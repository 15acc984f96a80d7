"""What a host keeps on disk (liveness, section 11)."""

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.room.record import (
    RECORD_VALID_S,
    TRANSCRIPT_KEPT,
    RecordedAsk,
    RecordedDeath,
    RecordedExchange,
    RecordedLimit,
    RecordedOptions,
    RecordedReply,
    RecordedSeat,
    RoomMemory,
    RoomRecord,
    RunningAnswer,
    is_fresh,
    read,
    write,
)

OPTIONS = RecordedOptions(
    code="4TKG9P",
    servers=["desk.lan:8080"],
    host_name="desk",
    model="smollm2-135m",
    max_tokens=400,
    temperature=0.0,
    top_k=40,
)
RECORD = RoomRecord(saved_at=1000.0, options=OPTIONS, memory=RoomMemory())

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
ids = st.lists(st.integers(0, 300_000), max_size=8)
counts = st.integers(0, (1 << 53) - 1)
asks = st.builds(RecordedAsk, asker=texts, name=texts, text=texts, prompt_ids=st.none() | ids)
replies = st.builds(RecordedReply, name=texts, text=texts, reply=texts, stats=texts, mid=counts)
seconds = st.none() | st.floats(0, 1e12)
limits = st.builds(
    RecordedLimit,
    name=texts,
    most_gb=st.floats(0, 4096),
    deaths=st.lists(st.builds(RecordedDeath, at=seconds, ago=seconds), max_size=2),
)
memories = st.builds(
    RoomMemory,
    answers=counts,
    exchanges=st.lists(
        st.builds(RecordedExchange, name=texts, question=texts, answer_ids=ids), max_size=3
    ),
    transcript=st.lists(replies, max_size=3),
    seats=st.lists(
        st.builds(RecordedSeat, name=texts, lo=st.integers(0, 99), hi=st.integers(0, 99)),
        max_size=3,
    ),
    limits=st.lists(limits, max_size=3),
    running=st.none() | st.builds(RunningAnswer, ask=asks, mid=counts, shown_ids=ids),
    waiting=st.lists(asks, max_size=3),
    checkpoint_counter=counts,
)
options = st.builds(
    RecordedOptions,
    code=st.sampled_from(["4TKG9P", "ABCD"]),
    servers=st.lists(texts, max_size=3),
    host_name=texts,
    model=texts,
    context_size=st.none() | st.integers(1, 1 << 20),
    split=st.none() | st.lists(st.integers(1, 80), max_size=4),
    pledge_gb=st.none() | st.floats(0.001, 4096),
    max_tokens=st.integers(1, 10_000),
    temperature=st.floats(0, 10),
    top_k=st.integers(1, 64),
    system=texts,
    is_open=st.booleans(),
    denies_unknown=st.booleans(),
    takes_older_devices=st.booleans(),
    takes_api_clients=st.booleans(),
    redeal_after_s=st.none() | st.floats(0.1, 86_400),
    wait=st.integers(0, 64),
    devices=st.none() | st.integers(1, 64),
)
records = st.builds(
    RoomRecord, version=st.just(1), saved_at=st.floats(0, 1e11), options=options, memory=memories
)


def as_json(record: RoomRecord = RECORD) -> dict:
    return json.loads(write(record))


@given(records)
def test_a_record_is_read_as_it_was_written(record):
    assert read(write(record)) == record


def test_a_record_from_before_limits_were_kept_has_none():
    former = as_json()
    del former["memory"]["limits"]
    assert read(json.dumps(former).encode()) == RECORD


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_none(data):
    assert read(data) is None


@given(records, st.data())
def test_a_record_cut_short_is_none(record, data):
    written = write(record)
    assert read(written[: data.draw(st.integers(0, len(written) - 1))]) is None


@given(records, st.data())
def test_a_flipped_byte_never_raises(record, data):
    written = bytearray(write(record))
    written[data.draw(st.integers(0, len(written) - 1))] = data.draw(st.integers(0, 255))
    found = read(bytes(written))
    assert found is None or read(write(found)) == found


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)


@given(st.sampled_from(sorted(as_json()["memory"])), json_values)
def test_fields_of_any_kind_never_raise(field, value):
    record = as_json()
    record["memory"][field] = value
    found = read(json.dumps(record).encode())
    assert found is None or isinstance(found.memory, RoomMemory)


@pytest.mark.parametrize("version", [0, 2, "1", None])
def test_other_versions_are_none(version):
    assert read(json.dumps(as_json() | {"version": version}).encode()) is None


@pytest.mark.parametrize("missing", ["saved_at", "options", "memory"])
def test_a_record_without_its_parts_is_none(missing):
    record = as_json()
    del record[missing]
    assert read(json.dumps(record).encode()) is None


@pytest.mark.parametrize(
    ("part", "field", "value"),
    [
        ("options", "code", "../../etc"),
        ("options", "code", "4TKG9P\n"),
        ("options", "code", ""),
        ("options", "host_name", "n" * 201),
        ("options", "max_tokens", 0),
        ("options", "pledge_gb", -1),
        ("options", "temperature", None),
        ("options", "servers", "desk.lan"),
        ("memory", "answers", -1),
        ("memory", "answers", 1 << 53),
        ("memory", "seats", [{"name": "a", "lo": -1, "hi": 2}]),
        ("memory", "exchanges", [{"name": "a", "question": "q", "answer_ids": [-1]}]),
        ("memory", "exchanges", [{"name": "a", "question": "q", "answer_ids": [1.5]}]),
        ("memory", "waiting", [{"asker": "a" * 129, "name": "a", "text": "q"}]),
    ],
)
def test_values_out_of_bounds_are_none(part, field, value):
    record = as_json()
    record[part][field] = value
    assert read(json.dumps(record).encode()) is None


def test_what_a_later_version_adds_is_left_alone():
    record = as_json()
    record["memory"]["later"] = record["later"] = 1
    assert read(json.dumps(record).encode()) == RECORD


def test_deep_nesting_is_none():
    assert read(b'{"memory":' + b"[" * 100_000) is None


def test_the_end_of_the_transcript_is_kept():
    said = [RecordedReply(name="a", text="", reply="", stats="", mid=n) for n in range(50)]
    record = msgspec.structs.replace(RECORD, memory=RoomMemory(transcript=said))
    found = read(write(record))
    assert found is not None
    assert found.memory.transcript == said[-TRANSCRIPT_KEPT:]


@pytest.mark.parametrize(
    ("age_s", "fresh"),
    [
        (0, True),
        (RECORD_VALID_S, True),
        (RECORD_VALID_S + 1, False),
        (-5, True),
        (-RECORD_VALID_S - 1, False),
    ],
)
def test_a_record_is_good_for_a_quarter_of_an_hour(age_s, fresh):
    assert is_fresh(RECORD, RECORD.saved_at + age_s) is fresh
