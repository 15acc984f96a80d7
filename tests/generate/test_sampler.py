"""Choosing a token."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.generate.sampler import PRESETS, Sampling, choose
from poolhouse_node.shard import TopLogits


def top(values: list[float]) -> TopLogits:
    ids = np.arange(100, 100 + len(values), dtype=np.int64)[None]
    return TopLogits(ids, np.array([values], dtype=np.float32), finite=True)


@pytest.mark.parametrize("temperature", [0.0, -1.0, math.nan])
def test_no_temperature_is_greedy(temperature):
    sampling = Sampling(temperature, 5)
    assert sampling.candidates == 1
    assert choose(top([3.0, 3.0, 1.0]), sampling, 0.99) == 100


def test_the_draw_walks_down_the_weights():
    values, sampling = [math.log(6), math.log(3), math.log(1)], Sampling(1.0, 3)
    drawn = [choose(top(values), sampling, draw) for draw in (0.0, 0.59, 0.61, 0.89, 0.91, 0.999)]
    assert drawn == [100, 100, 101, 101, 102, 102]


def test_temperature_sharpens():
    cold = choose(top([2.0, 1.0]), Sampling(0.01, 2), 0.9999)
    assert cold == 100


@pytest.mark.parametrize(("asked", "used"), [(0, 1), (40, 40), (1000, 64), (-3, 1)])
def test_top_k_is_clamped(asked, used):
    assert Sampling(0.7, asked).candidates == used


def test_presets():
    assert PRESETS["exact"].is_greedy
    assert PRESETS["creative"].candidates == 40


@given(
    values=st.lists(st.floats(-50, 50), min_size=1, max_size=64),
    draw=st.floats(0, 1, exclude_max=True),
    temperature=st.floats(0.05, 5),
)
def test_a_candidate_is_always_chosen(values, draw, temperature):
    ordered = sorted(values, reverse=True)
    assert choose(top(ordered), Sampling(temperature, 64), draw) in range(100, 100 + len(values))
