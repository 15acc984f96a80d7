"""Rounds of a prompt."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.generate.prefill import plan_rounds


@pytest.mark.parametrize(
    ("tokens", "rounds"),
    [
        (1, [1]),
        (4, [4]),
        (5, [4, 1]),
        (9, [8, 1]),
        (16, [8, 4, 4]),
        (17, [16, 1]),
        (36, [16, 16, 4]),
        (45, [16, 16, 8, 4, 1]),
    ],
)
def test_widths(tokens, rounds):
    assert plan_rounds(tokens) == rounds


@given(st.integers(1, 5000))
def test_rounds_hold_every_token_and_leave_a_tail(tokens):
    rounds = plan_rounds(tokens)
    assert sum(rounds) == tokens
    assert 1 <= rounds[-1] <= 4
    assert all(columns in {4, 8, 16} for columns in rounds[:-1])
