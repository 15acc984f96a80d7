"""What products of packed weights are compiled with, and what keeps it from working here.

Asked by the engine before it chooses a precision, and by ``cli`` before torch is imported.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import shutil

__all__ = ["cpu_fault", "cuda_fault"]

_C_COMPILERS = ("gcc", "clang")
"""In the order in which Triton looks for them."""


@functools.cache
def cpu_fault() -> str | None:
    """Why nothing can be compiled for the CPU, and what to do; ``None`` where numba works.

    It is imported, half a second the first time: installed, it may still refuse, beside a numpy
    that it does not know for example. Weights would then be counted smaller than they are held.
    """
    if importlib.util.find_spec("numba") is None:
        return "numba is not installed (pip install 'poolhouse[node]')"
    try:
        importlib.import_module("numba")
    except Exception as error:  # noqa: BLE001 - a broken library raises whatever it meets
        first_line = str(error).partition("\n")[0]
        reason = f"{type(error).__name__}: {first_line}".removesuffix(".")
        return f"numba cannot be imported, {reason} (pip install --upgrade numba)"
    return None


def cuda_fault() -> str | None:
    """Why no kernel can be compiled for a GPU that torch calls ``cuda``, and what to do.

    ``None`` where there are Triton and the C compiler with which it makes its launchers.
    """
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed (on Linux torch for CUDA brings it)"
    named = os.environ.get("CC")
    if named is not None:
        if shutil.which(named) is None:
            return f"the C compiler that CC names, {named!r}, is not there (correct or unset CC)"
    elif not any(map(shutil.which, _C_COMPILERS)):
        return "Triton finds no C compiler (apt install gcc libc6-dev)"
    return None
