"""What workers say of their layers and links, and what follows for the chain."""

from dataclasses import dataclass, field

import pytest

from poolhouse_node.device.events import Notice
from poolhouse_node.device.reports import Reports
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.room.seats import Seat, Seats
from poolhouse_node.wire.messages.asking import Stop
from poolhouse_node.wire.messages.loading import ErrorReport, Linked, LinkLost, Progress, Ready


@dataclass
class FakeDeal:
    """Also the orders and the guard: it keeps what it is told."""

    said: list[tuple] = field(default_factory=list)
    stalled: set[str] = field(default_factory=set)

    def progress(self, peer_id: str, percent: float) -> None:
        self.said.append(("progress", peer_id, percent))

    def ready(self, peer_id: str) -> None:
        self.said.append(("ready", peer_id))

    def relink_later(self, seat: Seat) -> None:
        self.said.append(("relink", seat.name))

    def load_later(self, seat: Seat) -> None:
        self.said.append(("load", seat.name))

    def is_stalled(self, name: str) -> bool:
        return name in self.stalled


class Chain:
    """Two workers, ann and bob, by the ids a and b."""

    def __init__(self, *, is_dealing: bool = False, is_whole: bool = True) -> None:
        self.ann, self.bob = Seat("ann", (4, 8), "a"), Seat("bob", (8, 12), "b")
        self.deal = FakeDeal()
        self.notices, self.broke, self.failed_laps, self.failed_deals = [], [], [], []
        self.changes = 0
        self.reports = Reports(
            lambda: Seats([self.ann, self.bob]),
            lambda: self.deal,
            is_dealing=lambda: is_dealing,
            is_whole=lambda: is_whole,
            orders=self.deal,
            guard=self.deal,
            notify=self.notices.append,
            fail_deal=lambda why: self.failed_deals.append(why) or is_dealing,
            broke=self.broke.append,
            fail_laps=self.failed_laps.append,
            changed=self._changed,
        )

    def _changed(self) -> None:
        self.changes += 1

    def hears(self, peer_id: str, message) -> bool:
        return self.reports.take(peer_id, message)


def test_what_is_about_something_else_is_left_to_others():
    chain = Chain()
    assert not chain.hears("a", Stop())
    assert chain.hears("nobody", Ready())
    assert (chain.changes, chain.broke, chain.deal.said) == (0, [], [])


def test_progress_goes_to_the_deal():
    chain = Chain()
    chain.hears("a", Progress(pct=40))
    assert chain.deal.said == [("progress", "a", 40)]
    chain.deal = None
    assert chain.hears("a", Progress(pct=50)), "before any deal it is nobody's"


@pytest.mark.parametrize("is_dealing", [True, False])
def test_a_device_that_is_ready_may_make_the_chain_whole(is_dealing):
    chain = Chain(is_dealing=is_dealing)
    chain.hears("b", Ready())
    assert chain.bob.is_ready
    assert not chain.ann.is_ready
    assert chain.changes == 1
    assert chain.deal.said == ([("ready", "b")] if is_dealing else [])


def test_a_link_as_ordered_stands():
    chain = Chain()
    chain.ann.is_linked = False
    chain.hears("a", Linked(next="b", ok=1))
    assert (chain.ann.is_linked, chain.ann.link_news, chain.changes) == (True, 1, 1)


def test_a_link_that_could_not_be_made_is_ordered_again():
    chain = Chain()
    chain.hears("a", Linked(next="b", ok=0))
    assert (chain.ann.is_linked, chain.ann.link_news, chain.changes) == (False, 1, 0)
    assert chain.deal.said == [("relink", "bob")]


@pytest.mark.parametrize(("peer_id", "linked_to"), [("a", "a"), ("b", "a"), ("nobody", "b")])
def test_a_link_that_is_none_of_the_chain_says_nothing(peer_id, linked_to):
    chain = Chain()
    chain.hears(peer_id, Linked(next=linked_to, ok=0))
    assert (chain.ann.link_news, chain.bob.link_news, chain.deal.said) == (0, 0, [])


def test_a_lost_link_breaks_the_chain_and_its_return_may_mend_it():
    chain = Chain()
    chain.hears("a", LinkLost(name="bob"))
    assert not chain.ann.is_linked
    assert chain.broke == ["bob stopped responding to ann"]
    assert chain.notices == [
        Notice("bob stopped responding to ann; waiting until the link is back.")
    ]
    chain.hears("a", LinkLost(name="bob", up=1))
    assert (chain.ann.is_linked, chain.changes) == (True, 1)


def test_a_link_to_who_is_not_here_is_not_back():
    chain = Chain()
    chain.ann.is_linked = chain.bob.is_here = False
    chain.hears("a", LinkLost(name="bob", up=1))
    assert (chain.ann.is_linked, chain.changes) == (False, 0)


def test_who_is_silent_to_the_host_as_well_is_silent_to_all():
    chain = Chain()
    chain.deal.stalled = {"bob"}
    chain.hears("a", LinkLost(name="bob"))
    assert chain.broke == ["bob stopped responding"]


def test_of_a_chain_that_is_broken_already_a_lost_link_is_no_news():
    chain = Chain(is_whole=False)
    chain.hears("a", LinkLost(name="bob"))
    assert chain.notices == []
    assert chain.broke


def test_a_lost_link_ends_the_deal_under_way():
    chain = Chain(is_dealing=True)
    chain.hears("a", LinkLost(name="bob"))
    assert chain.failed_deals == ["bob stopped responding to ann while the model was loading."]
    assert chain.notices == []


@pytest.mark.parametrize("name", ["ann", "someone"])
def test_a_lost_link_to_another_than_the_next_device_says_nothing(name):
    chain = Chain()
    chain.hears("a", LinkLost(name=name))
    chain.hears("b", LinkLost(name=name))  # the last one: its link is to the host
    assert (chain.broke, chain.ann.link_news) == ([], 0)


@pytest.mark.parametrize(
    ("text", "kind"), [("out of memory", "device-error"), ("NaN in layer 5", "not-a-number")]
)
def test_an_error_fails_the_laps_in_flight(text, kind):
    chain = Chain()
    chain.hears("a", ErrorReport(message=text))
    (failed,) = chain.failed_laps
    assert isinstance(failed, LapFailed)
    assert (failed.kind, str(failed)) == (kind, f"ann reported an error: {text}")
    assert chain.broke == []


def test_a_device_that_could_not_load_is_told_again():
    chain = Chain()
    chain.ann.is_ready = True
    chain.hears("a", ErrorReport(message="disk full", load=1))
    assert not chain.ann.is_ready
    assert chain.broke == ["ann couldn't load its layers (disk full)"]
    assert chain.deal.said == [("load", "ann")]
    assert len(chain.failed_laps) == 1


def test_a_device_that_could_not_load_ends_the_deal_under_way():
    chain = Chain(is_dealing=True)
    chain.hears("a", ErrorReport(message="disk full", load=1))
    assert chain.failed_deals == ["ann couldn't load its layers (disk full)"]
    assert (chain.broke, chain.deal.said) == ([], [])


def test_an_error_of_a_device_without_a_seat_is_not_the_chains():
    chain = Chain()
    chain.hears("guest", ErrorReport(message="NaN", load=1))
    assert (chain.failed_laps, chain.failed_deals, chain.broke) == ([], [], [])
