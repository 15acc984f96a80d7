"""The best logits: order, ties, NaN."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.engine.sampling import top_logits

NAN, INF = float("nan"), float("inf")


@given(
    st.lists(
        st.lists(st.sampled_from([-2.0, -1.0, 0.0, 0.5, 1.0, NAN]), min_size=7, max_size=7),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 9),
)
def test_equals_the_definition(rows, k):
    """Largest first, lower id first among equals, NaN as minus infinity."""
    top = top_logits(torch.tensor(rows), k)
    for ids, values, row in zip(top.ids, top.values, rows, strict=True):
        clean = [-INF if np.isnan(value) else value for value in row]
        expected = sorted(range(7), key=lambda index: (-clean[index], index))[:k]
        assert ids.tolist() == expected
        assert values.tolist() == [clean[index] for index in expected]
    assert top.finite == all(np.isfinite(row).all() for row in np.array(rows))
    assert (top.ids.dtype, top.values.dtype) == (np.int64, np.float32)


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
def test_anything_not_finite_is_told(bad):
    logits = torch.zeros(2, 10)
    logits[1, 9] = bad
    assert not top_logits(logits, 1).finite


def test_all_equal_logits_give_the_first_ids():
    assert top_logits(torch.zeros(1, 50_000), 5).ids.tolist() == [[0, 1, 2, 3, 4]]


def test_no_columns_give_none():
    assert top_logits(torch.zeros(0, 10), 3).ids.shape == (0, 3)
