"""A chain that is not whole: how long its seats are kept, what ends it (liveness, section 7)."""

import pytest

from poolhouse_node.room.outage import Outage


def test_what_breaks_later_belongs_to_the_same_outage():
    outage = Outage(60.0)
    outage.begin(10.0)
    outage.begin(30.0)
    assert outage.rest_s(30.0) == 40.0
    assert outage.end() == 10.0
    assert outage.since is None
    assert outage.end() is None


def test_seats_are_kept_until_the_time_is_over():
    outage = Outage(60.0)
    assert not outage.must_deal(1000.0)
    outage.begin(10.0)
    assert not outage.must_deal(69.9)
    assert outage.must_deal(70.0)


def test_without_a_limit_only_a_wish_deals_again():
    outage = Outage(None)
    outage.begin(0.0)
    assert outage.rest_s(1e9) is None
    assert not outage.must_deal(1e9)
    outage.wants_deal = True
    assert outage.must_deal(0.0)


def test_full_seats_end_it_unless_a_deal_has_to():
    outage = Outage(60.0)
    assert not outage.ends_by_seats
    outage.begin(0.0)
    assert outage.ends_by_seats
    outage.wants_deal = True
    assert not outage.ends_by_seats
    outage.wants_deal = False
    outage.deal_failed(5.0)
    assert not outage.ends_by_seats


def test_after_a_deal_that_failed_the_time_starts_afresh():
    outage = Outage(60.0)
    outage.begin(0.0)
    outage.deal_failed(70.0)
    assert not outage.must_deal(129.0)
    assert outage.must_deal(130.0)


def test_a_deal_that_worked_leaves_nothing_of_it():
    outage = Outage(60.0)
    outage.deal_failed(5.0)
    outage.wants_deal = True
    outage.deal_worked()
    assert outage == Outage(60.0)


@pytest.mark.parametrize(
    ("redeal_after_s", "wants_deal", "sentence"),
    [
        (60.0, True, "The layers are dealt again now."),
        (None, True, "The layers are dealt again now."),
        (None, False, "It waits until the device is back; automatic re-deal is off."),
        (90.4, False, "Unless it is back in 90 s, the layers are dealt again."),
    ],
)
def test_the_room_is_told_what_comes(redeal_after_s, wants_deal, sentence):
    assert Outage(redeal_after_s, wants_deal=wants_deal).when_again() == sentence
