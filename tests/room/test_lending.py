"""One pledge for several rooms: what is left, and what each host is offered."""

from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.room.lending import LEAST_OFFER_GB, Lending, Taken
from poolhouse_node.room.pledge import GIB


def test_what_other_rooms_took_is_not_offered_but_the_rooms_own_is():
    lending = Lending(4 * GIB)
    lending.take("A", Taken("lower half", GIB, GIB // 2))
    assert lending.left_bytes == 2.5 * GIB
    assert lending.offer_gb("A") == 4.0
    assert lending.offer_gb("B") == 2.5


def test_rooms_on_one_part_count_its_weights_once():
    lending = Lending(4 * GIB)
    lending.take("A", Taken("part", 2 * GIB, GIB // 4))
    lending.take("B", Taken("part", 2 * GIB, GIB // 2))
    assert lending.left_bytes == 1.25 * GIB
    lending.give_back("A")
    assert lending.left_bytes == 1.5 * GIB
    assert lending.offer_gb("A") == 1.5


def test_a_room_that_takes_again_gives_back_what_it_held():
    lending = Lending(4 * GIB)
    lending.take("A", Taken("large", 3 * GIB, 0))
    lending.take("A", Taken("small", GIB, 0))
    assert lending.left_bytes == 3 * GIB


def test_nothing_left_is_an_offer_that_no_layer_fits():
    """0 would count as not said, and get half a GB dealt."""
    lending = Lending(GIB)
    lending.take("A", Taken("part", 2 * GIB, 0))
    assert lending.left_bytes == 0
    assert lending.offer_gb("B") == LEAST_OFFER_GB


parts = st.builds(
    lambda part, state: Taken(part, {"x": 5 * GIB, "y": 7 * GIB}[part], state),
    st.sampled_from("xy"),
    st.integers(0, GIB),
)
changes = st.lists(st.tuples(st.sampled_from("ABC"), st.none() | parts), max_size=12)


@given(changes)
def test_what_is_offered_and_what_others_hold_never_exceed_the_pledge(changes):
    lending, held = Lending(20 * GIB), {}
    for room, taken in changes:
        if taken is None:
            lending.give_back(room)
            held.pop(room, None)
        else:
            lending.take(room, taken)
            held[room] = taken
    for room in "ABC":
        others = [taken for name, taken in held.items() if name != room]
        weights = {taken.part: taken.weights_bytes for taken in others}
        others_bytes = sum(weights.values()) + sum(taken.state_bytes for taken in others)
        assert others_bytes + lending.offer_gb(room) * GIB <= max(
            20 * GIB, others_bytes + LEAST_OFFER_GB * GIB
        )
