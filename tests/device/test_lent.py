"""What a device says it lends while its person's other rooms and its host change it."""

import pytest

from poolhouse_node.device.device import Identity
from poolhouse_node.device.lent import LentShare
from poolhouse_node.wire.messages.joining import Pledge
from poolhouse_node.wire.messages.loading import ShareLimit


class Device:
    def __init__(self, gb: float) -> None:
        self.identity = Identity("cellar", {"webgpu": True, "contribGB": gb})
        self.told: list[Pledge] = []
        self.is_inside = True
        self.lent = LentShare(
            lambda: self.identity, self._renew, self.told.append, lambda: self.is_inside
        )
        self.lent.greeted()

    def _renew(self, identity: Identity) -> None:
        self.identity = identity

    @property
    def gb(self) -> float:
        return self.identity.meta["contribGB"]


def test_the_host_is_told_what_is_left_and_only_of_news():
    device = Device(4.0)
    for gb in (4.0, 2.5, 2.5, 4.0):
        device.lent.offer(gb)
    assert device.told == [Pledge(gb=2.5), Pledge(gb=4.0)]
    assert device.identity == Identity("cellar", {"webgpu": True, "contribGB": 4.0})


def test_a_host_that_is_still_making_up_its_mind_hears_of_it_afterwards():
    device = Device(4.0)
    device.is_inside = False
    device.lent.offer(2.5)
    device.lent.offer(1.5)
    assert device.told == []
    device.is_inside = True
    device.lent.catch_up()
    device.lent.catch_up()
    assert device.told == [Pledge(gb=1.5)]


def test_a_hello_that_says_it_needs_no_pledge():
    device = Device(4.0)
    device.is_inside = False
    device.lent.offer(2.5)
    device.lent.greeted()
    device.is_inside = True
    device.lent.catch_up()
    assert device.told == []


def test_what_other_rooms_give_back_does_not_raise_what_the_host_lowered():
    device = Device(4.0)
    device.lent.limited(ShareLimit(gb=2.0, why="killed"))
    device.lent.offer(1.0)
    device.lent.offer(4.0)
    assert [pledge.gb for pledge in device.told] == [2.0, 1.0, 2.0]


def test_who_is_dealt_nothing_any_more_offers_nothing():
    device = Device(4.0)
    device.lent.limited(ShareLimit(drop=1, why="killed twice"))
    device.lent.offer(3.0)
    assert device.told == []
    assert device.identity.meta["webgpu"] is False


def refuse(device, counted_gb: float, needed_gb: float, *, is_told_first: bool = True) -> None:
    device.lent.dealt()
    calls = [(device.lent.counted, counted_gb), (device.lent.refused, needed_gb)]
    for call, gb in calls if is_told_first else reversed(calls):
        call(gb)


@pytest.mark.parametrize("is_told_first", [True, False])
def test_a_host_that_counts_layers_smaller_hears_of_less(is_told_first):
    """What it counts as 3 GB takes 6 here: 4 hold 2 of its GB."""
    device = Device(4.0)
    refuse(device, 3.0, 6.0, is_told_first=is_told_first)
    assert device.told == [Pledge(gb=pytest.approx(2.0, abs=0.001))]
    assert device.gb < 2.0  # so that what it rounded is no layer more
    assert device.lent.lends_gb == pytest.approx(4.0)
    device.lent.offer(2.0)
    device.lent.offer(4.0)
    assert [pledge.gb for pledge in device.told[1:]] == pytest.approx([1.0, 2.0], abs=0.001)


@pytest.mark.parametrize("counted_gb", [0.0, 6.002, 8.0])
def test_a_host_that_does_not_say_or_counts_as_much_is_told_nothing_new(counted_gb):
    device = Device(4.0)
    refuse(device, counted_gb, 6.0)
    assert device.told == []
    assert device.gb == 4.0


def test_a_deal_that_fits_changes_nothing_whatever_was_refused_before():
    device = Device(4.0)
    device.lent.refused(6.0)
    device.lent.dealt()
    device.lent.counted(3.0)
    assert device.told == []


def test_the_same_deal_again_is_no_news():
    device = Device(4.0)
    for _ in range(3):
        refuse(device, 3.0, 6.0)
    assert len(device.told) == 1


def test_a_limit_of_the_host_stays_below_it():
    device = Device(4.0)
    device.lent.limited(ShareLimit(gb=1.0, why="killed"))
    refuse(device, 3.0, 6.0)
    assert device.gb == 1.0
