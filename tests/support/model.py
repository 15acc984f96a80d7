"""The real SmolLM2 file, fetched once through our own code into the usual cache."""

import os
from functools import cache
from pathlib import Path

import pytest

from poolhouse_node.weights.cache import default_cache
from poolhouse_node.weights.source import ModelStore

__all__ = ["needs_model", "smollm2_path"]


@cache
def smollm2_path() -> Path:
    """Where SmolLM2-135M-Instruct Q4_1 lies. The first call may take as long as 98 MB take."""
    return ModelStore(default_cache(os.environ)).pull("smollm2-135m")


def needs_model[T](test: T) -> T:
    """Mark a test that uses :func:`smollm2_path`: it may have to fetch the file first."""
    marked: T = pytest.mark.model(pytest.mark.timeout(300)(test))
    return marked
