"""How functions are compiled, and how many threads a call may use."""

from __future__ import annotations

import functools
import importlib
import importlib.util
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["can_compile", "compiled", "parts_for", "use_threads"]

_SUMS_MAY_BE_REORDERED = {"contract", "reassoc", "nsz"}
"""What vector instructions need, and no more: infinities and NaN stay what they are."""
_WEIGHTS_FOR_A_THREAD = 1 << 17
"""Fewer are multiplied in the time that waking a thread takes."""


def can_compile() -> bool:
    """Whether numba is installed. Imports nothing."""
    return importlib.util.find_spec("numba") is not None


def compiled[**P, R](*, parallel: bool = False) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Compile a function when it is first called, without the interpreter's lock.

    The code is kept on disk where that is possible: beside the module or in the person's cache.
    """

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        options: dict[str, Any] = {
            "nogil": True,
            "fastmath": _SUMS_MAY_BE_REORDERED,
            "error_model": "numpy",
            "parallel": parallel,
        }
        jit = _numba().njit
        try:
            made: Callable[P, R] = jit(cache=True, **options)(function)
        except RuntimeError:  # there is no place that may be written to
            made = jit(**options)(function)
        return made

    return decorate


def parts_for(weights: int) -> int:
    """Into how many parts, one for each thread, a product with so many weights is cut."""
    if weights < 2 * _WEIGHTS_FOR_A_THREAD or not _has_threads():
        return 1
    return min(torch.get_num_threads(), weights // _WEIGHTS_FOR_A_THREAD, _threads_at_most())


def use_threads(count: int) -> None:
    """Let the next parallel call of this thread use so many."""
    _numba().set_num_threads(count)


@functools.cache
def _has_threads() -> bool:
    """OpenMP's threads sleep while they wait, as torch's do, and several callers may use them.

    numba's own do not allow two callers at once: then each call keeps to its thread.
    """
    try:
        importlib.import_module("numba.np.ufunc.omppool")
    except ImportError:
        return False
    _numba().config.THREADING_LAYER = "omp"
    return True


@functools.cache
def _threads_at_most() -> int:
    most: int = _numba().config.NUMBA_NUM_THREADS
    return most


@functools.cache
def _numba() -> Any:
    return importlib.import_module("numba")
