"""How functions are compiled, and how many threads a call may use."""

from __future__ import annotations

import contextlib
import functools
import importlib
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["compiled", "parts_for", "use_threads"]

_SUMS_MAY_BE_REORDERED = {"contract", "reassoc", "nsz"}
"""What vector instructions need, and no more: infinities and NaN stay what they are."""
_WEIGHTS_FOR_A_THREAD = 1 << 17
"""Fewer are multiplied in the time that waking a thread takes."""


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
        made: Callable[P, R] = _numba().njit(**options)(function)
        with contextlib.suppress(RuntimeError):  # there is no place that may be written to
            _keep_code(made, function)
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


def _keep_code(made: Any, function: Callable[..., Any]) -> None:
    """What ``njit(cache=True)`` does, with :func:`_lenient_cache`. Raises :class:`RuntimeError`."""
    made._cache = _lenient_cache()(function)  # noqa: SLF001 - numba has no other way to name one


@functools.cache
def _lenient_cache() -> type:
    """numba's code on disk, but a full disk or a damaged file only costs the time to compile.

    numba alone raises what it meets there, and goes on doing so until somebody deletes the files.
    """

    class LenientCache(importlib.import_module("numba.core.caching").FunctionCache):  # type: ignore[misc]
        def load_overload(self, sig: Any, target_context: Any) -> Any:
            try:
                return super().load_overload(sig, target_context)
            except Exception:  # noqa: BLE001 - pickle raises anything when a file is damaged
                with contextlib.suppress(OSError):
                    self.flush()
                return None

        def save_overload(self, sig: Any, data: Any) -> None:
            with contextlib.suppress(OSError):
                super().save_overload(sig, data)

    return LenientCache


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
