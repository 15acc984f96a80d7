"""What a host makes of devices that say they were killed while they loaded."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.device.events import Share
from poolhouse_node.device.load_deaths import LoadDeaths
from poolhouse_node.room.record import (
    LIMITS_KEPT,
    RecordedOptions,
    RecordedSeat,
    RoomMemory,
    RoomRecord,
    read,
    write,
)
from poolhouse_node.room.roster import Member
from poolhouse_node.wire.messages import parse
from poolhouse_node.wire.messages.joining import Died

HOST = Share("host", 0, 4, 1.0)
OTTER = Share("otter", 4, 12, 2.0)
OPTIONS = RecordedOptions(
    code="4TKG9P",
    servers=[],
    host_name="host",
    model="m",
    max_tokens=1,
    temperature=0.0,
    top_k=1,
)


def death(at: float | None = 1000.0, **said) -> Died:
    return Died(**{"during": "loading", "ago": 5.0, "at": at, "loading": True} | said)


def member(name: str = "otter", pledge_gb: float = 2.0) -> Member:
    return Member("id", name, {"webgpu": True, "contribGB": pledge_gb})


@pytest.fixture
def deaths() -> LoadDeaths:
    known = LoadDeaths(layer_gb=0.25)
    known.dealt([HOST, OTTER])
    return known


def test_the_first_death_halves_the_share(deaths):
    otter = member()
    limit = deaths.came(otter, death())
    assert limit.gb == otter.most_gb == otter.pledge_gb == 1.0
    assert not limit.drop
    assert limit.why.startswith("otter was killed while it loaded 8 layers.")


def test_the_second_one_leaves_it_out(deaths):
    deaths.came(member(), death(1000.0))
    otter = member()
    limit = deaths.came(otter, death(2000.0))
    assert limit.drop
    assert limit.gb is None
    assert not otter.holds_layers
    assert "may ask" in limit.why


def test_one_layer_cannot_be_halved(deaths):
    deaths.dealt([HOST, Share("otter", 4, 5, 0.25)])
    assert deaths.came(member(), death()).drop


@pytest.mark.parametrize("ago", [5.0, 8.0])
def test_the_same_death_counts_once(deaths, ago):
    deaths.came(member(), death(ago=5.0))
    again = member()
    assert deaths.came(again, death(ago=ago)) is None
    assert again.most_gb == 1.0  # and is not forgotten


def test_without_a_time_the_age_tells_deaths_apart(deaths):
    assert deaths.came(member(), death(None, ago=5.0)) is not None
    assert deaths.came(member(), death(None, ago=5.0)) is None
    assert deaths.came(member(), death(None, ago=6.0)).drop


@pytest.mark.parametrize("died", [None, death(loading=False)])
def test_other_deaths_change_nothing(deaths, died):
    otter = member()
    assert deaths.came(otter, died) is None
    assert otter.most_gb is None


@pytest.mark.parametrize("name", ["host", "stranger"])
def test_names_that_were_dealt_nothing_to_load_are_not_kept(deaths, name):
    for at in range(100):
        assert deaths.came(member(name), death(float(at))) is None
    assert not deaths._seen


def test_a_pledge_that_is_raised_again_stays_limited(deaths):
    deaths.came(member(), death())
    otter = member(pledge_gb=64.0)
    assert deaths.came(otter, None) is None
    assert otter.pledge_gb == 1.0


class TestTheNextHost:
    """It takes up what the one before it knew."""

    @staticmethod
    def after(deaths, seats=()) -> LoadDeaths:
        memory = RoomMemory(limits=deaths.limits(), seats=list(seats))
        record = RoomRecord(saved_at=0.0, options=OPTIONS, memory=memory)
        return LoadDeaths.taken_up(0.25, read(write(record)).memory)

    def test_a_lowered_share_stays_lowered(self, deaths):
        deaths.came(member(), death())
        otter = member()
        assert self.after(deaths).came(otter, None) is None
        assert otter.most_gb == 1.0

    def test_a_death_that_was_counted_counts_no_more(self, deaths):
        deaths.came(member(), death())
        again = self.after(deaths)
        again.dealt([HOST, OTTER])
        assert again.came(member(), death()) is None

    def test_the_second_one_is_the_second(self, deaths):
        deaths.came(member(), death(1000.0))
        again = self.after(deaths)
        again.dealt([HOST, OTTER])
        assert again.came(member(), death(2000.0)).drop

    def test_who_was_left_out_stays_out(self, deaths):
        deaths.came(member(), death(1000.0))
        deaths.came(member(), death(2000.0))
        otter = member()
        self.after(deaths).came(otter, None)
        assert not otter.holds_layers

    def test_a_death_that_nobody_was_told_of_counts_for_the_seat_before(self, deaths):
        seats = [RecordedSeat(name=each.name, lo=each.lo, hi=each.hi) for each in (HOST, OTTER)]
        otter = member()
        limit = self.after(deaths, seats).came(otter, death())
        assert limit.gb == otter.most_gb == 1.0

    def test_no_more_is_kept_than_is_read(self, deaths):
        names = [f"otter {number}" for number in range(LIMITS_KEPT + 5)]
        deaths.dealt([HOST, *(Share(name, 4, 12, 2.0) for name in names)])
        for name in names:
            deaths.came(member(name), death())
        kept = [limit.name for limit in deaths.limits()]
        assert kept == names[5:]
        assert self.after(deaths).limits() == deaths.limits()


@given(
    died=st.dictionaries(
        st.sampled_from(["during", "ago", "at", "loading", "x"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.none()),
    ),
    layers=st.integers(1, 100),
    pledge_gb=st.floats(0.01, 64),
)
def test_whatever_a_device_says_its_share_never_grows(died, layers, pledge_gb):
    known = LoadDeaths(layer_gb=0.25)
    known.dealt([HOST, Share("otter", 4, 4 + layers, 1.0)])
    hello = parse({"t": "hello", "name": "otter", "v": 4, "died": died})
    before_gb = pledge_gb
    for _ in range(4):
        otter = member(pledge_gb=pledge_gb)
        limit = known.came(otter, hello.died)
        assert 0 < otter.pledge_gb <= before_gb or not otter.holds_layers
        if limit is not None:
            assert limit.drop or limit.gb < before_gb
        before_gb = otter.pledge_gb
    assert len(known._seen.get("otter", [])) <= 2
