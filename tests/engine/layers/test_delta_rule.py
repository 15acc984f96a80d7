"""The gated delta rule: both forms against its definition, and a column's bits in any company."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.engine.layers.delta_rule import (
    CHUNK_COLUMNS,
    DeltaInputs,
    delta_chunks,
    delta_steps,
)

HEADS, KEY, VALUE = 3, 8, 4
# Float32 keeps seven digits; answers are about 1, and errors add up over the columns.
TOLERANCE = 2e-5


def random_inputs(n, seed, decay=1.0):
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(shape, generator=random)

    keys = normal(n, HEADS, KEY)
    return DeltaInputs(
        queries=normal(n, HEADS, KEY) * KEY**-0.5,
        keys=keys / keys.norm(dim=-1, keepdim=True),
        values=normal(n, HEADS, VALUE),
        rates=torch.sigmoid(normal(n, HEADS)),
        log_decays=-decay * torch.rand((n, HEADS), generator=random),
    ), normal(HEADS, KEY, VALUE)


def by_definition(memory, inputs):
    """In float64, one head and one column at a time."""
    memory = memory.double().numpy().copy()
    answers = np.zeros((len(inputs), HEADS, VALUE))
    for t in range(len(inputs)):
        for h in range(HEADS):
            k = inputs.keys[t, h].double().numpy()
            memory[h] *= np.exp(float(inputs.log_decays[t, h]))
            error = inputs.values[t, h].double().numpy() - memory[h].T @ k
            memory[h] += np.outer(k, float(inputs.rates[t, h]) * error)
            answers[t, h] = memory[h].T @ inputs.queries[t, h].double().numpy()
    return memory, answers


@pytest.mark.parametrize("form", [delta_steps, delta_chunks])
@pytest.mark.parametrize("n", [1, 2, 16, CHUNK_COLUMNS, CHUNK_COLUMNS + 1, 3 * CHUNK_COLUMNS - 5])
@pytest.mark.parametrize("decay", [0.0, 0.1, 30.0])
def test_equals_the_definition(form, n, decay):
    inputs, memory = random_inputs(n, n, decay)
    wanted_memory, wanted = by_definition(memory, inputs)
    answers = form(memory, inputs)
    assert np.abs(answers.numpy() - wanted).max() < TOLERANCE
    assert np.abs(memory.numpy() - wanted_memory).max() < TOLERANCE


@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.integers(0, 99))
@settings(deadline=None, max_examples=40)
def test_steps_give_the_same_bits_however_columns_come(frames, seed):
    inputs, memory = random_inputs(sum(frames), seed)
    split_memory = memory.clone()
    whole = delta_steps(memory, inputs)
    starts = np.cumsum([0, *frames])
    parts = [delta_steps(split_memory, inputs[a:b]) for a, b in itertools.pairwise(starts)]
    assert torch.equal(torch.cat(parts), whole)
    assert torch.equal(split_memory, memory)


def test_the_memory_can_be_seen_after_every_column():
    inputs, memory = random_inputs(5, 1)
    alone = memory.clone()
    seen = []
    delta_steps(memory, inputs, lambda column: seen.append((column, memory.clone())))
    for column, kept in seen:
        delta_steps(alone, inputs[column : column + 1])
        assert torch.equal(alone, kept)
    assert [column for column, _ in seen] == [0, 1, 2, 3, 4]


def test_a_decay_to_nothing_forgets_without_a_nan():
    inputs, memory = random_inputs(70, 2)
    inputs.log_decays[20] = -1e4
    memory *= 1e20
    answers = delta_chunks(memory, inputs)
    assert answers.isfinite().all()
    assert answers[20:].abs().max() < 100
