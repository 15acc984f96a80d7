"""Names that are too long for a room stay apart from each other."""

from hypothesis import example, given
from hypothesis import strategies as st

from poolhouse_node.room.names import NAME_CHARACTERS, fit_name
from poolhouse_node.room.roster import clean_name

LABELS = st.from_regex(r"[a-z]([a-z0-9-]{0,60}[a-z0-9])?", fullmatch=True)


def test_a_long_name_has_the_same_short_one_for_ever():
    name = "poolhouse-production-frankfurt-gpu-h200-pool-12"
    assert fit_name(name) == "poolhouse-production-frankfur-fc837e0219"


@given(st.text())
@example("x" * 40)
@example("x" * 41)
@example("\ud800" * 41)
def test_a_name_fits_and_one_that_fits_is_kept(name):
    fitted = fit_name(name)
    assert len(fitted) <= NAME_CHARACTERS
    assert fit_name(fitted) == fitted
    assert fitted == name or len(name) > NAME_CHARACTERS


@given(st.lists(LABELS, unique=True, min_size=2, max_size=30))
def test_names_of_pods_stay_apart(names):
    assert len({fit_name(name) for name in names}) == len(names)


@given(LABELS, st.integers(1, 2000))
def test_pods_of_a_set_stay_apart(name, ordinal):
    assert fit_name(f"{name}-{ordinal}") != fit_name(f"{name}-{ordinal - 1}")


@given(LABELS)
def test_a_host_keeps_a_fitted_name_as_it_is(name):
    assert clean_name(fit_name(name), "peer") == fit_name(name)
