"""The deal against every vector that applies to it."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.room.deal import (
    DealError,
    ModelNeeds,
    deal_by_memory,
    deal_exactly,
    deal_for_speed,
    does_it_fit,
    ranges_of,
)
from poolhouse_node.room.pledge import pledge_after_load_death, pledge_gb
from poolhouse_node.room.split import (
    layer_caps,
    phones_to_leave_out,
    split_by_memory,
    split_for_speed,
)
from tests.support.vectors import cases, vectors

PLAN = vectors("plan")["cases"]


def of(function: str, *, without: str = "\0") -> list:
    return cases([c for c in PLAN if c["fn"] == function and without not in c["args"]])


@pytest.mark.parametrize("case", of("planSplit"))
def test_split_by_memory(case):
    args, expect = case["args"], case["expect"]
    assigned = split_by_memory(args["L"], args["caps"], args["max"])
    if expect["short"]:
        assert assigned is None
    else:
        assert assigned == expect["assigned"]
        assert [list(r) for r in ranges_of(assigned)] == expect["ranges"]


@pytest.mark.parametrize("case", of("planForSpeed"))
def test_split_for_speed(case):
    args, expect = case["args"], case["expect"]
    caps = [math.inf if cap == "inf" else cap for cap in args["caps"]]
    phones = args.get("phone") or []
    assigned, short = split_for_speed(args["L"], caps, args.get("ms") or [], phones)
    assert assigned == expect["assigned"]
    assert short == expect["short"]


@pytest.mark.parametrize("case", of("layerCaps"))
def test_layer_caps(case):
    args = case["args"]
    caps = layer_caps(args["pledges"], args["layerBytes"], args["hostBytes"])
    assert caps == case["expect"]


@pytest.mark.parametrize("case", of("phonesToLeaveOut"))
def test_phones_to_leave_out(case):
    args = case["args"]
    assert phones_to_leave_out(args["L"], args["caps"], args["phone"]) == case["expect"]


def needs_of(args: dict) -> ModelNeeds:
    return ModelNeeds(args["L"], args["layerBytes"], args["hostBytes"])


def check_fit(fit, expect):
    assert fit.fits == expect["fits"]
    assert fit.caps == expect["caps"]
    assert fit.missing_layers == expect["missing"]
    assert fit.short_bytes == expect["short"]
    raises = [math.inf if value == "inf" else value for value in expect["raise"]]
    assert list(fit.raise_bytes) == raises


@pytest.mark.parametrize("case", of("roomFit"))
def test_room_fit(case):
    check_fit(does_it_fit(needs_of(case["args"]), case["args"]["pledges"]), case["expect"])


@pytest.mark.parametrize("case", of("dealRoom", without="off"))
def test_deal(case):
    """Expert offload (``off``) is a part of its own and not dealt yet."""
    args, expect = case["args"], case["expect"]
    needs, pledges, phones = needs_of(args), args["pledges"], args.get("phone") or []
    check_fit(does_it_fit(needs, pledges), expect["fit"])
    if args.get("mode") == "speed":
        deal = deal_for_speed(needs, pledges, args.get("ms") or [], phones)
    else:
        deal = deal_by_memory(needs, pledges, phones, deal_phones=args.get("phoneLayers", False))
    assert [seat.device for seat in deal.seats] == expect["used"]
    assert [[seat.lo, seat.hi] for seat in deal.seats] == expect["ranges"]
    assert [seat.held_bytes for seat in deal.seats] == expect["held"]
    assert {str(i): why for i, why in deal.left_out.items()} == expect["out"]


@pytest.mark.parametrize("case", of("pledgeGB"))
def test_pledge(case):
    args = case["args"]
    assert pledge_gb(args["meta"], args.get("hostCap")) == case["expect"]


@pytest.mark.parametrize("case", of("afterLoadDeath"))
def test_pledge_after_load_death(case):
    args, expect = case["args"], case["expect"]
    share = pledge_after_load_death(
        layers=args["layers"],
        layer_gb=args["layerGB"],
        share_gb=args["gb"],
        deaths=args["deaths"],
    )
    assert share == (None if expect["drop"] else expect["gb"])


@pytest.mark.parametrize("said", [math.nan, math.inf, -3, "12", True, None, [1]])
def test_a_pledge_that_is_no_number_counts_as_unsaid(said):
    assert pledge_gb({"contribGB": said}) == 0.5


def test_a_pledge_too_small_is_refused():
    needs = ModelNeeds(layers=10, layer_bytes=100, host_bytes=200)
    with pytest.raises(DealError):
        deal_by_memory(needs, [250, 100])


def test_an_exact_split_is_dealt_as_said():
    needs = ModelNeeds(layers=30, layer_bytes=100, host_bytes=50)
    deal = deal_exactly(needs, [10, 10, 10], devices=4)
    assert [(seat.lo, seat.hi) for seat in deal.seats] == [(0, 10), (10, 20), (20, 30)]
    assert deal.seats[0].held_bytes == 1050
    assert deal.left_out == {3: "unneeded"}


@pytest.mark.parametrize("split", [[10, 10], [10, 10, 11], [30, 0], [10, 10, 5, 5]])
def test_a_split_that_is_none_is_refused(split):
    with pytest.raises(DealError):
        deal_exactly(ModelNeeds(30, 100, 0), split, devices=3)


@given(
    layers=st.integers(1, 80),
    offers=st.lists(st.floats(0, 1e12), min_size=1, max_size=8),
    data=st.data(),
)
def test_a_split_holds_every_layer_within_the_maximums(layers, offers, data):
    most = data.draw(st.lists(st.integers(0, 80), min_size=len(offers), max_size=len(offers)))
    assigned = split_by_memory(layers, offers, most)
    if assigned is None:
        assert most[0] < 1 or sum(most) < layers
    else:
        assert sum(assigned) == layers
        assert all(0 <= count <= top for count, top in zip(assigned, most, strict=True))
        assert assigned[0] >= 1
