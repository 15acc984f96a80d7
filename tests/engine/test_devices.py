"""Threads and devices."""

import pytest
import torch

from poolhouse_node.engine import devices, pick_device, set_threads


def test_threads_are_set_and_at_least_one():
    before = torch.get_num_threads()
    try:
        set_threads(0)
        assert torch.get_num_threads() == 1
    finally:
        set_threads(before)


def test_auto_is_a_device_that_works():
    assert torch.zeros(1, device=pick_device("auto")).sum() == 0
    assert pick_device("cpu") == torch.device("cpu")


@pytest.mark.parametrize(
    ("device", "triton", "compilers", "found"),
    [
        ("cuda", True, {"gcc"}, True),
        ("cuda", True, {"clang"}, True),
        ("cuda", True, set(), False),
        ("cuda", False, {"gcc"}, False),
        ("cpu", True, {"gcc"}, False),
    ],
)
def test_kernels_need_triton_and_a_compiler(monkeypatch, device, triton, compilers, found):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(devices.importlib.util, "find_spec", lambda _: object() if triton else None)
    monkeypatch.setattr(devices.shutil, "which", lambda name: name if name in compilers else None)
    assert devices.has_kernels(torch.device(device)) is found
