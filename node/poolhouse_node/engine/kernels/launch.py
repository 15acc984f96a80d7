"""How kernels are launched on what is here."""

from __future__ import annotations

import functools

import torch
import triton

__all__ = ["inline_assembly", "interpreted"]


def interpreted() -> bool:
    """Kernels run in Triton's interpreter (``TRITON_INTERPRET=1``): for tests without a GPU."""
    return bool(triton.knobs.runtime.interpret)


@functools.cache
def inline_assembly() -> bool:
    """Whether PTX may stand in kernels: not in the interpreter, not on AMD GPUs."""
    return not interpreted() and torch.version.hip is None
