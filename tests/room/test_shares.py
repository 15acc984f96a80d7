"""Reading who holds what."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.room.shares import ModelPart, comes_before, read_layers
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.messages import parse
from tests.support.vectors import cases, vectors


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("0–19", (0, 20)),
        ("7–7", (7, 8)),
        ("0-19", None),
        ("–3", None),
        ("3–", None),
        ("", None),
        ("-1–3", None),
        ("²–3", None),
        ("٣–٤", None),
        ("0–" + "9" * 5000, None),
    ],
)
def test_layers_are_read_as_a_range(text, layers):
    assert read_layers(text) == layers


@given(st.text(alphabet="0123456789–-²٣ ", max_size=20))
def test_no_text_raises(text):
    read_layers(text)


HELD = {"host": (0, 4), "ann": (4, 8), "bob": (8, 12)}


def test_frames_come_from_the_device_before():
    assert comes_before("host", 4, HELD)
    assert comes_before("ann", 8, HELD)
    assert not comes_before("host", 8, HELD)
    assert not comes_before("bob", 8, HELD)
    assert not comes_before("guest", 4, HELD)


def test_before_the_host_has_told_anyone_may():
    assert comes_before("guest", 4, {})
    assert comes_before("guest", 4, {"ann": (4, 8)})


@pytest.mark.parametrize("case", cases(vectors("liveness")["same_shard"]))
def test_who_keeps_its_layers(case):
    def part(load: dict) -> ModelPart | None:
        try:
            message = parse({"t": "ai-load", "v": 4, "next": "host", "host": "h", **load})
        except WireError:
            return None  # it names no layers
        return ModelPart.of(message)

    assert (part(case["held"]) == part(case["load"])) == case["keep"]
