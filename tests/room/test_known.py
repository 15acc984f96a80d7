"""What a joined device knows of its room, from the host's messages."""

from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.room.known import KnownRoom
from poolhouse_node.wire.messages.joining import Member, Roster
from poolhouse_node.wire.messages.loading import Layers

ME = "id-me"


def known(**names: str) -> KnownRoom:
    """A device that was told of these, by id."""
    room = KnownRoom("otter")
    room.take_roster(Roster(members=[Member(id=who, name=name) for who, name in names.items()]), ME)
    return room


def test_the_host_may_call_this_device_otherwise():
    room = KnownRoom("otter")
    room.take_roster(Roster(members=[Member(id=ME, name="otter 2")]), ME)
    assert room.my_name == "otter 2"
    room.take_roster(Roster(members=[Member(id="other", name="newt")]), ME)
    assert room.my_name == "otter 2", "it is kept by a host that leaves it out"


def test_a_roster_replaces_the_one_before():
    room = known(a="ann", b="bob")
    assert room.name_of("b") == "bob"
    room.take_roster(Roster(members=[Member(id="a", name="ann", a=1)]), ME)
    assert list(room.roster.members) == ["a"]
    assert room.name_of("b") == "b", "an id stands in for a name that is not known"
    assert room.roster.proves("a") is True
    assert room.roster.proves("b") is None


def test_frames_come_from_the_device_before_in_the_room():
    room = known(a="ann", b="bob")
    room.take_layers(Layers(by={"ann": "0–3", "bob": "4–7", "me": "8–11"}))
    assert room.may_send_frames("b", 8)
    assert not room.may_send_frames("a", 8)
    assert not room.may_send_frames("sent-out", 8)


def test_when_a_deal_begins_anyone_in_the_room_may_be_before():
    room = known(a="ann", b="bob")
    room.take_layers(Layers(by={"ann": "0–3", "bob": "4–7"}))
    room.deal_begins()
    assert room.held == {}
    assert room.may_send_frames("a", 8)
    assert not room.may_send_frames("sent-out", 8)


def test_text_that_is_no_range_counts_as_no_layers():
    room = known(a="ann")
    room.take_layers(Layers(by={"ann": "0-3", "bob": "4–7"}))
    assert room.held == {"bob": (4, 8)}


@given(st.dictionaries(st.text(max_size=8), st.text(alphabet="0123456789–-x", max_size=9)))
def test_whatever_is_told_the_layers_are_ranges(by):
    room = KnownRoom("otter")
    room.take_layers(Layers(by=by))
    assert all(isinstance(lo, int) and isinstance(hi, int) for lo, hi in room.held.values())
