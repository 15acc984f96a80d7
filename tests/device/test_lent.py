"""What a device says it lends while its person's other rooms and its host change it."""

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
