"""A mixture of experts between its products: the router, the choice, the sum (engine, section 5).

An expert that a column uses is a *job*. Jobs are computed each for itself from the packed weights
of its expert, so the sum of a column does not depend on its neighbours. A shared expert of the
same width is stacked behind the others and is one more job of every column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import triton
import triton.language as tl

from poolhouse_node.engine.kernels.language import sigmoid
from poolhouse_node.engine.kernels.launch import EXACT

if TYPE_CHECKING:
    from torch import Tensor

__all__ = ["choose", "mix", "router_scores"]

_COLUMN_SPAN = 1024


@triton.jit
def _router_scores(
    x,  # [columns, length] float32
    weight,  # [rows, length] float32
    out,  # [columns, rows] float32
    length,
    rows,
    SPAN: tl.constexpr,
):
    """One row of one column."""
    row = tl.program_id(0)
    column = tl.program_id(1)
    total = tl.zeros((SPAN,), tl.float32)
    for start in range(0, length, SPAN):
        at = start + tl.arange(0, SPAN)
        mask = at < length
        value = tl.load(x + column * length + at, mask=mask, other=0.0)
        total += value * tl.load(weight + row * length + at, mask=mask, other=0.0)
    tl.store(out + column * rows + row, tl.sum(total, axis=0))


def router_scores(x: Tensor, weight: Tensor) -> Tensor:
    """``weight x`` in float32 with one order of sums: [n, length] to [n, rows]."""
    n, length = x.shape
    rows = weight.shape[0]
    out = torch.empty(n, rows, device=x.device)
    span = min(_COLUMN_SPAN, triton.next_power_of_2(length))
    _router_scores[(rows, n)](x, weight, out, length, rows, SPAN=span, num_warps=4, **EXACT)
    return out


@triton.jit
def _choose(
    scores,  # [columns, row] float32: experts, then perhaps the shared one's gate
    chosen,  # [columns, jobs] int32
    weights,  # [columns, jobs] float32
    row,
    experts,
    jobs,
    EXPERTS: tl.constexpr,
    USED: tl.constexpr,
    RANKS: tl.constexpr,
    HAS_SHARED: tl.constexpr,
    NORMALISED: tl.constexpr,
):
    column = tl.program_id(0)
    expert = tl.arange(0, EXPERTS)
    score = tl.load(scores + column * row + expert, mask=expert < experts, other=-float("inf"))
    share = tl.exp(score - tl.max(score, axis=0))
    share = share / tl.sum(share, axis=0)
    left = tl.where(expert < experts, share, -1.0)
    rank = tl.arange(0, RANKS)
    ids = tl.full((RANKS,), 0, tl.int32)
    shares = tl.zeros((RANKS,), tl.float32)
    taken = 0.0
    for place in tl.static_range(USED):
        best = tl.max(left, axis=0)
        # The lower one of equals.
        at = tl.minimum(tl.min(tl.where(left == best, expert, EXPERTS), axis=0), experts - 1)
        ids = tl.where(rank == place, at, ids)
        shares = tl.where(rank == place, best, shares)
        left = tl.where(expert == at, -1.0, left)
        taken += best
    if NORMALISED:
        shares = shares / taken
    # The largest of NaNs may be a number: whatever was taken then, its weight is a NaN.
    shares += tl.sum(share * 0.0, axis=0)
    if HAS_SHARED:
        gate = tl.load(scores + column * row + experts)
        ids = tl.where(rank == USED, experts, ids)
        shares = tl.where(rank == USED, sigmoid(gate), shares)
    tl.store(chosen + column * jobs + rank, ids, mask=rank < jobs)
    tl.store(weights + column * jobs + rank, shares, mask=rank < jobs)


def choose(
    scores: Tensor, experts: int, used: int, *, shared: bool, normalised: bool
) -> tuple[Tensor, Tensor]:
    """Experts and weights of each column's jobs: int32 and float32 [n, jobs].

    ``scores`` [n, experts], with ``shared`` one more: the logit of the shared expert's gate.
    """
    n, row = scores.shape
    jobs = used + (1 if shared else 0)
    chosen = torch.empty(n, jobs, dtype=torch.int32, device=scores.device)
    weights = torch.empty(n, jobs, device=scores.device)
    _choose[(n,)](
        scores,
        chosen,
        weights,
        row,
        experts,
        jobs,
        EXPERTS=triton.next_power_of_2(experts),
        USED=used,
        RANKS=triton.next_power_of_2(jobs),
        HAS_SHARED=shared,
        NORMALISED=normalised,
        **EXACT,
        num_warps=1,
    )
    return chosen, weights


@triton.jit
def _mix(
    outputs,  # [columns, jobs, length] float32
    weights,  # [columns, jobs] float32
    out,  # [columns, length] float32
    length,
    JOBS: tl.constexpr,
    SPAN: tl.constexpr,
):
    column = tl.program_id(1)
    at = tl.program_id(0) * SPAN + tl.arange(0, SPAN)
    mask = at < length
    total = tl.zeros((SPAN,), tl.float32)
    for job in tl.static_range(JOBS):
        weight = tl.load(weights + column * JOBS + job)
        total += weight * tl.load(outputs + (column * JOBS + job) * length + at, mask=mask)
    tl.store(out + column * length + at, total, mask=mask)


def mix(outputs: Tensor, weights: Tensor) -> Tensor:
    """Weighted sums [n, length] of ``outputs`` [n * jobs, length], in the order of jobs."""
    n, jobs = weights.shape
    length = outputs.shape[1]
    out = torch.empty(n, length, device=outputs.device)
    _mix[(triton.cdiv(length, 256), n)](
        outputs, weights, out, length, JOBS=jobs, SPAN=256, num_warps=1, **EXACT
    )
    return out
