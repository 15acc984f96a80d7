"""Rules of relays (relay, sections 1, 3 and 4)."""

import math
from urllib.parse import parse_qsl

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.room.relays import (
    DEFAULT_LIFE_S,
    LONGEST_LIFE_S,
    asks_default_relay,
    credential_life_s,
    is_reusable,
    refresh_after_s,
    retry_after_s,
    weights_may_cross,
)
from tests.support.vectors import cases, vectors

TURN = vectors("turn")


@pytest.mark.parametrize("case", cases(TURN["refresh"], "ttl_s"))
def test_the_refresh_comes_at_three_quarters_of_the_life(case):
    after_s = refresh_after_s(credential_life_s(case["ttl_s"]))
    assert after_s * 1000 == case["refresh_in_ms"]


@pytest.mark.parametrize("case", cases(TURN["ask_default_relay"]))
def test_who_asks_for_the_default_relay(case):
    query = dict(parse_qsl(case["query"]))
    own_relay = bool(case["user_relay"] or case["site_relays"])
    asks = asks_default_relay(
        case["host"],
        own_relay=own_relay,
        relay_wanted=query.get("relay") != "0",
        asked_for={"0": False, "1": True}.get(query.get("turnapi")),
    )
    assert asks is case["ask"]


@pytest.mark.parametrize("host", ["127.8.9.1", "::1", "room.localhost", "LOCALHOST"])
def test_other_names_of_this_machine(host):
    assert not asks_default_relay(host, own_relay=False)


@pytest.mark.parametrize("case", cases(TURN["weights"]))
def test_weights_stay_off_relays(case):
    relayed = {"relay": True, "direct": False, None: None}[case["path"]]
    allowed = weights_may_cross(relayed, relay_configured=case["relay_configured"])
    assert allowed is case["weights_allowed"]


@pytest.mark.parametrize(
    "ttl", [None, 0, -1, True, "600", [], {}, math.nan, math.inf, -math.inf], ids=repr
)
def test_a_life_that_is_none_counts_as_an_hour(ttl):
    assert credential_life_s(ttl) == DEFAULT_LIFE_S


@given(st.integers(min_value=1) | st.floats(min_value=1e-9, allow_infinity=False))
def test_whatever_life_is_stated_the_timers_stay_sane(ttl):
    life_s = credential_life_s(ttl)
    assert 0 < life_s <= LONGEST_LIFE_S
    assert 60 <= retry_after_s(life_s) <= refresh_after_s(life_s) <= LONGEST_LIFE_S


@pytest.mark.parametrize(
    ("age_s", "good"), [(0, True), (299.9, True), (300, False), (600, False), (-1, False)]
)
def test_later_joins_reuse_what_is_younger_than_half_its_life(age_s, good):
    assert is_reusable(age_s, 600) is good


def test_what_was_reused_is_refreshed_by_its_own_age():
    assert refresh_after_s(600, 100) == 350
    assert refresh_after_s(600, 440) == 60


def test_a_refresh_that_failed_is_tried_as_if_the_life_were_a_quarter():
    assert retry_after_s(3600) == 675
    assert retry_after_s(100) == 60
