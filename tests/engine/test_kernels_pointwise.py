"""Kernels between products, beside plain torch."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from poolhouse_node.engine.halves import to_halves
from poolhouse_node.engine.layers.norm import rms_norm
from tests.support.kernels import DEVICE, QUIET, relative_error
from tests.support.vectors import vectors

from poolhouse_node.engine.kernels.activations import Wide, levels_for, wide_for  # isort: skip
from poolhouse_node.engine.kernels.experts import choose, mix, router_scores  # isort: skip
from poolhouse_node.engine.kernels.halves import pack_halves  # isort: skip
from poolhouse_node.engine.kernels.pointwise import add_norm, gate_heads, gate_up  # isort: skip

pytestmark = QUIET


def random(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(DEVICE)


def values_of(target):
    """The columns that a kernel wrote, as float32 [columns, values]."""
    if isinstance(target, Wide):
        return target.values[: target.columns].float()
    blocks = target.levels.shape[1]
    scaled = target.levels.float() * target.factors.unsqueeze(3)
    if target.apart:
        pairs = scaled[:, :, :2]
        return pairs.sum(2).reshape(target.columns, blocks * 32)
    pairs = scaled[0].view(blocks, -1, 2, 32)[:, : target.columns]
    return pairs.sum(2).transpose(0, 1).reshape(target.columns, blocks * 32)


def targets(columns, values):
    return {
        "levels": levels_for(columns, values, DEVICE),
        "apart": levels_for(columns, values, DEVICE, apart=True),
        "wide": wide_for(columns, values, DEVICE),
    }


@pytest.mark.parametrize("kind", ["levels", "apart", "wide"])
@pytest.mark.parametrize("parts", [0, 1, 3])
def test_residual_sum_and_norm(kind, parts):
    x, weight, deltas = random(3, 96), random(96, seed=1), random(max(1, parts), 3, 96, seed=2)
    wanted_x = x + deltas.sum(0) if parts else x.clone()
    wanted = rms_norm(wanted_x, weight, 1e-6)
    target, normed = targets(3, 96)[kind], torch.empty_like(x)
    add_norm(x, deltas if parts else None, weight, 1e-6, target, normed)
    assert relative_error(x, wanted_x) < 1e-6
    assert relative_error(normed, wanted) < 1e-6
    assert relative_error(values_of(target), wanted) < (1e-2 if kind == "wide" else 1e-4)


def test_sums_of_levels_are_those_of_their_blocks():
    target = levels_for(2, 64, DEVICE)
    add_norm(random(2, 64), None, random(64, seed=1), 1e-6, target)
    sums = target.sums[0, :, :4].view(2, 2, 2).sum(2).T
    blocks = values_of(target).view(2, 2, 32).sum(2)
    assert torch.allclose(sums, blocks, atol=1e-5)


@pytest.mark.parametrize("kind", ["levels", "wide"])
def test_feed_forward_gates(kind):
    x = random(2, 3, 2 * 80)
    both = x.sum(0)
    wanted = functional.silu(both[:, :80]) * both[:, 80:]
    target = targets(3, 96)[kind]  # a padded matrix reads zeros past the values
    gate_up(x, target)
    got = values_of(target)
    assert relative_error(got[:, :80], wanted) < (1e-2 if kind == "wide" else 1e-4)
    assert not got[:, 80:].any()


def test_heads_are_normed_and_gated():
    answers, inputs, weight = random(3, 2, 32), random(2, 3, 100, seed=1), random(32, seed=2)
    gates = inputs.sum(0)[:, 20:84].view(3, 2, 32)
    wanted = (rms_norm(answers, weight, 1e-6) * functional.silu(gates)).flatten(1)
    target = levels_for(3, 128, DEVICE)
    gate_heads(answers, inputs, 20, weight, 1e-6, target)
    got = values_of(target)
    assert relative_error(got[:, :64], wanted) < 1e-4
    assert not got[:, 64:].any()


@pytest.mark.parametrize("normalised", [True, False])
def test_experts_are_chosen_and_mixed(normalised):
    x, router = random(3, 96), random(9, 96, seed=1)
    scores = router_scores(x, router)
    assert relative_error(scores, x @ router.T) < 1e-6
    chosen, weights = choose(scores, 8, 3, shared=True, normalised=normalised)
    shares, ids = torch.topk(torch.softmax(scores[:, :8], -1), 3)
    if normalised:
        shares = shares / shares.sum(-1, keepdim=True)
    assert torch.equal(chosen[:, :3].long(), ids)
    assert chosen[:, 3].tolist() == [8, 8, 8]
    assert torch.allclose(weights[:, :3], shares, atol=1e-6)
    assert torch.allclose(weights[:, 3], torch.sigmoid(scores[:, 8]), atol=1e-6)
    outputs = random(12, 40, seed=2)
    wanted = (outputs.view(3, 4, 40) * weights.unsqueeze(2)).sum(1)
    assert relative_error(mix(outputs, weights), wanted) < 1e-6


def test_the_lower_of_equal_experts_is_taken_first():
    scores = torch.zeros(1, 6, device=DEVICE)
    chosen, weights = choose(scores, 6, 2, shared=False, normalised=True)
    assert chosen.tolist() == [[0, 1]]
    assert weights.tolist() == [[0.5, 0.5]]


def test_scores_that_are_no_numbers_choose_experts_that_exist():
    scores = torch.full((1, 6), float("nan"), device=DEVICE)
    chosen, weights = choose(scores, 6, 2, shared=False, normalised=True)
    assert all(0 <= expert < 6 for expert in chosen[0].tolist())
    assert not torch.isfinite(weights).all()


def test_every_half_float_vector_packs():
    rows = vectors("f16")["f32_to_f16"]
    bits = np.array([int(row[0], 16) for row in rows], np.uint32)
    values = torch.from_numpy(bits.view(np.float32)).to(DEVICE)
    halves, _ = pack_halves(values)
    assert [f"{half & 0xFFFF:04x}" for half in halves.tolist()] == [row[1] for row in rows]


def test_random_bits_pack_as_the_plain_code_packs_them():
    random_bits = torch.randint(
        -(2**31), 2**31, (5000,), generator=torch.Generator().manual_seed(4), dtype=torch.int64
    )
    values = random_bits.to(torch.int32).view(torch.float32)
    halves, _ = pack_halves(values.to(DEVICE))
    assert torch.equal(halves.cpu(), to_halves(values))


@pytest.mark.parametrize(
    ("extra", "largest"), [(3.5, 3.5), (-70000.0, 70000.0), (float("-inf"), float("inf"))]
)
def test_the_largest_magnitude_comes_along(extra, largest):
    values = torch.cat([torch.ones(1500), torch.tensor([extra])]).to(DEVICE)
    assert pack_halves(values)[1].item() == largest


def test_a_nan_is_the_largest_of_all():
    values = torch.tensor([1.0, float("nan"), float("inf")], device=DEVICE)
    assert np.isnan(pack_halves(values)[1].item())
