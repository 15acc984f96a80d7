"""Rotation of a part of a head, the convolution, and the mixture of experts, by definition."""

import numpy as np
import pytest
import torch

from poolhouse_node.engine.layers.convolution import convolve, with_window
from poolhouse_node.engine.layers.experts import ExpertBank
from poolhouse_node.engine.layers.feed_forward import ExpertFeedForward
from poolhouse_node.engine.layers.linear import DenseMatrix
from poolhouse_node.engine.layers.rope import RotaryTable

CPU = torch.device("cpu")


def normal(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("rotated", [2, 6, 12])
def test_a_part_of_a_head_rotates_and_the_rest_passes(rotated):
    heads = normal(3, 2, 12)
    turned = RotaryTable(rotated, 100.0, 9, CPU).rotate(heads, 4)
    assert torch.equal(turned[..., rotated:], heads[..., rotated:])
    for column in range(3):
        for i in range(rotated // 2):
            angle = (4 + column) * 100.0 ** (-2 * i / rotated)
            a, b = heads[column, 1, i].item(), heads[column, 1, i + rotated // 2].item()
            expected = a * np.cos(angle) - b * np.sin(angle)
            other = b * np.cos(angle) + a * np.sin(angle)
            assert turned[column, 1, i].item() == pytest.approx(expected, abs=1e-6)
            assert turned[column, 1, i + rotated // 2].item() == pytest.approx(other, abs=1e-6)


def test_the_last_tap_is_for_the_current_column():
    window, inputs, taps = normal(3, 5), normal(7, 5, seed=1), normal(4, 5, seed=2)
    rows = with_window(window, inputs)
    out = convolve(rows, taps)
    everything = torch.cat([window, inputs]).double()
    for column in range(7):
        expected = sum(taps[tap].double() * everything[column + tap] for tap in range(4))
        assert out[column].tolist() == pytest.approx(expected.tolist(), abs=1e-6)


def test_a_convolved_column_has_the_same_bits_alone():
    window, inputs, taps = normal(3, 33), normal(6, 33, seed=1), normal(4, 33, seed=2)
    whole = convolve(with_window(window, inputs), taps)
    for column in range(6):
        rows = with_window(window, inputs[column : column + 1])
        assert torch.equal(convolve(rows, taps)[0], whole[column])
        window = rows[1:]


def feed_forward(normalised):
    gate, up = normal(6, 10, 8), normal(6, 10, 8, seed=1)
    down = normal(6, 8, 10, seed=2)
    router = normal(6, 8, seed=3)
    bank = ExpertBank.of_matrices(gate, up, down)
    layer = ExpertFeedForward(DenseMatrix(router), bank, None, used=2, normalised=normalised)
    return layer, (gate.double(), up.double(), down.double(), router.double())


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("columns", [1, 2, 40])
def test_every_column_gets_its_own_experts(normalised, columns):
    layer, (gate, up, down, router) = feed_forward(normalised)
    x = normal(columns, 8, seed=4)
    out = layer(x)
    for column in range(columns):
        h = x[column].double()
        shares = torch.softmax(router @ h, 0)
        best = shares.argsort(descending=True)[:2]
        weights = shares[best] / (shares[best].sum() if normalised else 1)
        expected = torch.zeros(8, dtype=torch.float64)
        for weight, expert in zip(weights, best, strict=True):
            inner = torch.nn.functional.silu(gate[expert] @ h) * (up[expert] @ h)
            expected += weight * (down[expert] @ inner)
        assert out[column].tolist() == pytest.approx(expected.tolist(), abs=1e-4)


def test_experts_hold_what_their_tensors_take():
    layer, _ = feed_forward(normalised=True)
    assert layer.held_bytes == 4 * (6 * 8 + 6 * 3 * 10 * 8)
