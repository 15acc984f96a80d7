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
    ("device", "fault", "found"),
    [("cuda", None, True), ("cuda", "Triton is not installed", False), ("cpu", None, False)],
)
def test_kernels_need_a_card_and_what_compiles_for_it(monkeypatch, device, fault, found):
    monkeypatch.setattr(devices, "cuda_fault", lambda: fault)
    assert devices.has_kernels(torch.device(device)) is found
