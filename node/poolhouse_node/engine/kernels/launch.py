"""How kernels are launched on what is here."""

from __future__ import annotations

import functools

import torch
import triton

__all__ = ["EXACT", "inline_assembly", "interpreted"]

EXACT = {"enable_fp_fusion": False}
"""Launch options of every kernel whose results must not depend on how many columns there are.

Where a product and a sum may be fused, a compiler chooses which of them, and chooses anew for each
specialisation of a kernel. Fused operations are written as such instead.
"""


def interpreted() -> bool:
    """Kernels run in Triton's interpreter (``TRITON_INTERPRET=1``): for tests without a GPU."""
    return bool(triton.knobs.runtime.interpret)


@functools.cache
def inline_assembly() -> bool:
    """Whether PTX may stand in kernels: not in the interpreter, not on AMD GPUs."""
    return not interpreted() and torch.version.hip is None
