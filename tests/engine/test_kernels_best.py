"""Keys that sort as logits do: beside the plain way of finding the best."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.engine.sampling import top_logits
from tests.support.kernels import DEVICE, QUIET

from poolhouse_node.engine.kernels.best import best_keys, read_keys  # isort: skip

pytestmark = QUIET
# Few values, so that there are ties; both zeros, subnormals and what is not finite among them.
VALUES = st.sampled_from(
    [0.0, -0.0, 1.0, -1.0, 1e-40, -1e-40, 3e38, -3e38, 0.5, -0.25]
) | st.floats(width=32)


def best(logits, k):
    return read_keys(best_keys(logits.to(DEVICE), k).cpu().numpy())


@given(st.lists(VALUES, min_size=1, max_size=40), st.integers(1, 45))
@settings(max_examples=40, deadline=None)
def test_they_find_what_the_plain_way_finds(values, k):
    logits = torch.tensor([values, values[::-1]])
    wanted, got = top_logits(logits, k), best(logits, k)
    assert got.ids.tolist() == wanted.ids.tolist()
    assert np.array_equal(got.values, wanted.values)
    assert got.finite == wanted.finite


@pytest.mark.parametrize("k", [1, 2, 5, 300])
def test_the_best_may_lie_in_any_span(k):
    random = torch.Generator().manual_seed(k)
    logits = torch.randint(-50, 50, (3, 1300), generator=random).float()
    wanted, got = top_logits(logits, k), best(logits, k)
    assert got.ids.tolist() == wanted.ids.tolist()
    assert np.array_equal(got.values, wanted.values)


@pytest.mark.parametrize("odd", [torch.nan, torch.inf, -torch.inf])
def test_one_value_that_is_no_number_is_enough(odd):
    logits = torch.zeros(3, 600)
    logits[1, 577] = odd
    assert not best(logits, 2).finite
