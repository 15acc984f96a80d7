"""The best logits of columns without leaving the device: each logit becomes a number to sort by.

A key is the logit's place among all float32 numbers above the inverted id, 64 bits in all: no two
are equal, and among equal logits the lower id has the larger key (generation, section 12). The
``k`` best keys lie in the ``k`` spans with the largest best ones, so only those are sorted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
import triton
import triton.language as tl

from poolhouse_node.shard import TopLogits

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from torch import Tensor

__all__ = ["best_keys", "read_keys"]

_SPAN = 256
_LOW = 0xFFFF_FFFF
_MAGNITUDE = 0x7FFF_FFFF


@triton.jit
def _keys(
    logits,  # [columns, count] float32
    keys,  # [columns, spans, SPAN] int64
    largest,  # [columns, spans] int64
    finite,  # [columns, spans] int64: 1 when all logits of a span are
    count,
    SPAN: tl.constexpr,
):
    """One span of one column. NaN counts as minus infinity, and there is one zero, not two."""
    span = tl.program_id(0)
    column = tl.program_id(1)
    at = span * SPAN + tl.arange(0, SPAN)
    mask = at < count
    value = tl.load(logits + column * count + at, mask=mask, other=0.0)
    is_finite = tl.abs(value) <= 3.4028234663852886e38
    value = tl.where(value == value, value, float("-inf"))  # noqa: PLR0124 - but for a NaN
    value = tl.where(value == 0.0, 0.0, value)
    bits = value.to(tl.int32, bitcast=True)
    ordered = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    key = (ordered << 32) | (0xFFFFFFFF - at.to(tl.int64))
    key = tl.where(mask, key, -0x8000000000000000)
    place = column * tl.num_programs(0) + span
    tl.store(keys + place * SPAN + tl.arange(0, SPAN), key)
    tl.store(largest + place, tl.max(key, axis=0))
    tl.store(finite + place, tl.min(is_finite.to(tl.int64), axis=0))


def best_keys(logits: Tensor, k: int) -> Tensor:
    """[n, vocabulary] to int64 [n, k + 1]: the best keys, largest first, and at last 1 when every
    logit of the column is finite. Does not wait."""
    n, count = logits.shape
    spans, k = triton.cdiv(count, _SPAN), min(k, count)
    keys = torch.empty(n, spans, _SPAN, dtype=torch.int64, device=logits.device)
    largest, finite = torch.empty(2, n, spans, dtype=torch.int64, device=logits.device)
    _keys[(spans, n)](logits.contiguous(), keys, largest, finite, count, SPAN=_SPAN, num_warps=1)
    if k == 1:
        best = largest.amax(1, keepdim=True)
    else:
        chosen = largest.topk(min(k, spans), dim=1).indices
        some = keys.gather(1, chosen.unsqueeze(2).expand(-1, -1, _SPAN))
        best = some.flatten(1).topk(k, dim=1).values
    return torch.cat([best, finite.amin(1, keepdim=True)], dim=1)


def read_keys(rows: NDArray[np.int64]) -> TopLogits:
    """What :func:`best_keys` gave, on the host."""
    keys = rows[:, :-1]
    ordered = (keys >> 32).astype(np.int32)
    bits = np.where(ordered < 0, ordered ^ np.int32(_MAGNITUDE), ordered)
    return TopLogits(
        ids=_LOW - (keys & _LOW),
        values=bits.view(np.float32),
        finite=bool(rows[:, -1].all()),
    )
