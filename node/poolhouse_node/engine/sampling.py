"""The best logits of a column (generation, section 12). Drawing a token is the host's business."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from poolhouse_node.shard import TopLogits

__all__ = ["top_logits"]


def top_logits(logits: Tensor, k: int) -> TopLogits:
    """The ``k`` best of each row of ``logits`` [n, vocabulary] (fewer if the vocabulary is less).

    Largest first, the lower id first among equals and at the cut. NaN counts as minus infinity.
    """
    finite = bool(torch.isfinite(logits).all())
    if not finite:
        logits = torch.where(logits.isnan(), -torch.inf, logits)
    k = min(k, logits.shape[1])
    rows = [_best(row, k) for row in logits]
    ids = np.stack([row_ids for row_ids, _ in rows]) if rows else np.empty((0, k), np.int64)
    values = np.stack([row for _, row in rows]) if rows else np.empty((0, k), np.float32)
    return TopLogits(ids=ids, values=values, finite=finite)


def _best(row: Tensor, k: int) -> tuple[np.ndarray, np.ndarray]:
    # topk alone breaks ties as it likes: take every id at or above the cut, in order of id, and
    # sort those few stably.
    cut = torch.topk(row, k, sorted=False).values.amin()
    ids = torch.nonzero(row >= cut).flatten()
    values, order = torch.sort(row[ids], descending=True, stable=True)
    return ids[order[:k]].cpu().numpy(), values[:k].cpu().numpy()
