"""Compiling for this CPU: with threads, without a place for the code, with the lock released."""

import errno
import threading

import numba
import numpy as np
import pytest
import torch
from numba.core.caching import CacheImpl, IndexDataCacheFile

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


def one_more(x):
    return x + 1


class TestCodeOnDisk:
    @pytest.fixture(autouse=True)
    def place(self, tmp_path, monkeypatch):
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
        return tmp_path

    def read_from_disk(self):
        """Compile, or find the code as another process would; whether it was found."""
        function = compiled()(one_more)
        assert function(2) == 3
        return bool(function.stats.cache_hits)

    def test_a_second_process_reads_what_the_first_compiled(self):
        assert [self.read_from_disk() for _ in range(2)] == [False, True]

    def test_without_a_place_for_it_each_process_compiles(self, place, monkeypatch):
        file = place / "file"
        file.touch()
        monkeypatch.setattr(numba.config, "CACHE_DIR", str(file))
        monkeypatch.setattr(CacheImpl, "_locator_classes", CacheImpl._locator_classes[:1])
        assert [self.read_from_disk() for _ in range(2)] == [False, False]

    @pytest.mark.parametrize("pattern", ["*.nbi", "*.nbc"])
    @pytest.mark.parametrize("kept", [0, 30])
    def test_a_damaged_file_is_replaced(self, place, pattern, kept):
        """As a machine leaves it that lost its power."""
        self.read_from_disk()
        (file,) = place.rglob(pattern)
        file.write_bytes(file.read_bytes()[:kept])
        assert [self.read_from_disk() for _ in range(2)] == [False, True]

    def test_a_full_disk_costs_the_time_to_compile_only(self, monkeypatch):
        def full(*_):
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr(IndexDataCacheFile, "save", full)
            assert not self.read_from_disk()
        assert not self.read_from_disk()
        assert self.read_from_disk()
