"""Rules of links (relay, section 6; liveness, section 12; wire, section 1; decision 15)."""

import pytest

from poolhouse_node.room.links import (
    LinkFailed,
    join_step,
    no_path_sentence,
    reconnect_delay_s,
    stripe_redial_delay_s,
)
from tests.support.vectors import cases, vectors

LIVENESS = vectors("liveness")


@pytest.mark.parametrize("case", cases(LIVENESS["join_step"], "ms"))
def test_join_step(case):
    assert join_step(case["ms"] / 1000, case["ice"]) == case["step"]


@pytest.mark.parametrize("ice", [None, "new", "connected"])
def test_a_device_that_answered_exists(ice):
    assert join_step(15, ice, answered=True) == "fail-no-path"


@pytest.mark.parametrize("case", cases(LIVENESS["reconnect_delay"], "attempt"))
def test_reconnect_delay(case):
    assert reconnect_delay_s(case["attempt"]) * 1000 == case["delay_ms"]


def test_stripes_are_dialed_again_four_times_at_most():
    assert [stripe_redial_delay_s(tries) for tries in range(6)] == [2, 4, 6, 8, None, None]


@pytest.mark.parametrize("relay", [True, False])
@pytest.mark.parametrize("udp_blocked", [True, False, None])
def test_what_to_say_when_no_path_was_found(relay, udp_blocked):
    sentence = no_path_sentence(relay=relay, udp_blocked=udp_blocked)
    assert ("password" in sentence) is relay
    assert ("blocks UDP" in sentence) is (udp_blocked is True and not relay)


def test_a_failure_says_why():
    failure = LinkFailed("no-such-peer", "No device with that id is there.")
    assert (failure.kind, str(failure)) == ("no-such-peer", "No device with that id is there.")
