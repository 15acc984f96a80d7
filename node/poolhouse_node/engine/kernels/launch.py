"""How kernels are launched on what is here."""

from __future__ import annotations

import torch
import triton

__all__ = ["EXACT", "inline_assembly"]

EXACT = {"enable_fp_fusion": False}
"""Launch options of every kernel whose results must not depend on how many columns there are.

Where a product and a sum may be fused, a compiler chooses which of them, and chooses anew for each
specialisation of a kernel. Fused operations are written as such instead.
"""


_INTERPRETED = bool(triton.knobs.runtime.interpret)
"""``TRITON_INTERPRET=1`` when this package was imported: kernels run on the CPU, for tests."""


def inline_assembly() -> bool:
    """Whether PTX may stand in kernels: not in the interpreter, not on AMD GPUs."""
    return not _INTERPRETED and torch.version.hip is None
