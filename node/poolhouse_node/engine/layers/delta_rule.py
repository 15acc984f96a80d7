"""The gated delta rule (engine, section 4): a memory that forgets, corrects itself, and answers.

Two forms of the same recurrence. Steps are exact in the sense that a column gets the same bits in
any company; chunks solve a small triangular system instead and suit long prefill.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["CHUNK_COLUMNS", "DeltaInputs", "delta_chunks", "delta_steps"]

CHUNK_COLUMNS = 64


@dataclass(frozen=True, slots=True)
class DeltaInputs:
    """``n`` columns for ``heads`` memories [key size, value size], in order."""

    queries: Tensor
    """[n, heads, key size], already scaled."""
    keys: Tensor
    """[n, heads, key size], of length 1."""
    values: Tensor
    """[n, heads, value size]."""
    rates: Tensor
    """[n, heads]: how much of the error is corrected, 0 to 1."""
    log_decays: Tensor
    """[n, heads]: logarithm of what is left of the memory, at most 0."""

    def __getitem__(self, columns: slice) -> DeltaInputs:
        return DeltaInputs(
            self.queries[columns],
            self.keys[columns],
            self.values[columns],
            self.rates[columns],
            self.log_decays[columns],
        )

    def __len__(self) -> int:
        return self.keys.shape[0]


def delta_steps(
    memory: Tensor, inputs: DeltaInputs, after_column: Callable[[int], None] | None = None
) -> Tensor:
    """Column by column. ``memory`` [heads, key size, value size] is updated in place.

    ``after_column(j)`` is called when the memory is as after column ``j``. Returns
    [n, heads, value size].
    """
    decays = inputs.log_decays.exp().unsqueeze(2).unsqueeze(3)
    rates = inputs.rates.unsqueeze(2).unsqueeze(3)
    values, keys, queries = (
        each.unsqueeze(2) for each in (inputs.values, inputs.keys, inputs.queries)
    )
    answers = torch.empty_like(values)
    for column in range(len(inputs)):
        memory.mul_(decays[column])
        remembered = torch.bmm(keys[column], memory)
        correction = rates[column] * (values[column] - remembered)
        memory.add_(keys[column].transpose(1, 2) * correction)
        torch.bmm(queries[column], memory, out=answers[column])
        if after_column is not None:
            after_column(column)
    return answers.squeeze(2)


def delta_chunks(memory: Tensor, inputs: DeltaInputs) -> Tensor:
    """The same up to rounding, :data:`CHUNK_COLUMNS` at a time."""
    starts = range(0, len(inputs), CHUNK_COLUMNS)
    return torch.cat([_chunk(memory, inputs[start : start + CHUNK_COLUMNS]) for start in starts])


def _chunk(memory: Tensor, inputs: DeltaInputs) -> Tensor:
    """With ``G_t`` the product of decays up to column t, the corrections ``e`` of a chunk solve

    ``e_t + rate_t * sum over i < t of G_t / G_i * (k_t . k_i) e_i = rate_t * (v_t - G_t k_t S)``

    where S is the memory before the chunk: one triangular system per head.
    """
    queries, keys, values = (
        each.transpose(0, 1) for each in (inputs.queries, inputs.keys, inputs.values)
    )
    rates = inputs.rates.T.unsqueeze(2)
    log_kept = inputs.log_decays.T.cumsum(1)  # log G, [heads, n]
    kept = log_kept.exp().unsqueeze(2)
    ratios = _causal_ratios(log_kept)
    system = rates * ratios * (keys @ keys.transpose(1, 2))
    wanted = rates * (values - kept * (keys @ memory))
    # The solver takes the diagonal for ones and does not look above it.
    errors: Tensor = torch.linalg.solve_triangular(system, wanted, upper=False, unitriangular=True)
    answers = kept * (queries @ memory) + (ratios * (queries @ keys.transpose(1, 2))) @ errors
    to_the_end = (log_kept[:, -1:] - log_kept).exp().unsqueeze(2)
    memory.mul_(kept[:, -1:]).add_((keys * to_the_end).transpose(1, 2) @ errors)
    return answers.transpose(0, 1)


def _causal_ratios(log_kept: Tensor) -> Tensor:
    """``G_t / G_i`` for i <= t and 0 above, [heads, n, n]."""
    n = log_kept.shape[1]
    future = torch.ones(n, n, dtype=torch.bool, device=log_kept.device).triu(1)
    differences = log_kept.unsqueeze(2) - log_kept.unsqueeze(1)
    # Filled before exp: above the diagonal the ratio may be infinite.
    return differences.masked_fill(future, -torch.inf).exp()
