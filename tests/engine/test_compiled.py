"""Compiling for this CPU: with threads, without a place for the code, with the lock released."""

import threading
from types import SimpleNamespace

import numba
import numpy as np
import pytest
import torch

from poolhouse_node.engine.compiled import compiling, products
from poolhouse_node.engine.compiled.compiling import compiled, parts_for

WEIGHTS_FOR_TWO = 1 << 18


@pytest.fixture
def two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def weights(blocks, columns):
    random = np.random.default_rng(blocks)
    levels = random.integers(0, 256, (blocks, columns, 32), np.uint8)
    factors = random.random((2, blocks, columns // 32, 64), np.float32)
    return levels, factors[0], factors[1]


@pytest.mark.usefixtures("two_threads")
def test_parts_change_no_bit(monkeypatch):
    packed, x = weights(65, 64), np.ones((3, 64), np.float32)
    results = []
    for parts in (1, 2):
        monkeypatch.setattr(products, "parts_for", lambda _, parts=parts: parts)
        out, unpacked = np.empty((3, 65 * 64), np.float32), np.empty((64, 65 * 64), np.float32)
        products.multiply(*packed, x, out)
        products.unpack(*packed, unpacked)
        results.append((out, unpacked))
    (one, unpacked_by_one), (two, unpacked_by_two) = results
    assert np.array_equal(one, two)
    assert np.array_equal(unpacked_by_one, unpacked_by_two)
    assert np.allclose(one, x @ unpacked_by_one, rtol=1e-4)


@pytest.mark.usefixtures("two_threads")
def test_small_products_keep_to_one_thread(monkeypatch):
    monkeypatch.setattr(compiling, "_threads_at_most", lambda: 8)
    assert parts_for(WEIGHTS_FOR_TWO - 1) == 1
    monkeypatch.setattr(compiling, "_has_threads", lambda: True)
    assert parts_for(WEIGHTS_FOR_TWO) == 2
    assert parts_for(1 << 40) == 2
    monkeypatch.setattr(compiling, "_has_threads", lambda: False)
    assert parts_for(1 << 40) == 1


@pytest.mark.usefixtures("two_threads")
def test_two_callers_at_once_get_what_each_asked_for():
    packed = weights(64, 64)
    outs = [np.empty((1, 64 * 64), np.float32) for _ in range(2)]

    def work(out, value):
        for _ in range(50):
            products.multiply(*packed, np.full((1, 64), value, np.float32), out)

    threads = [threading.Thread(target=work, args=(out, i + 1)) for i, out in enumerate(outs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert np.allclose(2 * outs[0], outs[1])


def test_code_is_compiled_where_nothing_may_be_written(monkeypatch):
    real, asked = numba.njit, []

    def njit(**options):
        asked.append(options.get("cache", False))
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return real(**options)

    monkeypatch.setattr(compiling, "_numba", lambda: SimpleNamespace(njit=njit))
    assert compiled()(lambda x: x + 1)(2) == 3
    assert asked == [True, False]
