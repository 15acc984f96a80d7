"""Causal attention of new columns over the rows of a conversation, wherever they lie."""

from __future__ import annotations

from typing import TYPE_CHECKING

from poolhouse_node.engine.layers.attention import attend

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from poolhouse_node.engine.paged.pages import KeyValuePages, Span

__all__ = ["paged_attention"]


def paged_attention(
    queries: Tensor, pages: KeyValuePages, layer: int, spans: Sequence[Span], mask: Tensor | None
) -> Tensor:
    """Attention of ``queries`` [n, heads, size] over the rows in ``spans``, [n, heads * size].

    One span is read in place. Several are gathered first: the product then sees the same numbers
    in the same order, and the result has the same bits wherever blocks lie.
    """
    keys, values = pages.read(layer, spans)
    return attend(queries, keys, values, mask)
