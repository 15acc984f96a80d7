"""Threads and devices."""

import os

import pytest
import torch

from poolhouse_node.engine import fair_threads, pick_device, set_threads


@pytest.mark.parametrize(
    ("cores", "devices", "threads"), [(8, 1, 8), (8, 3, 2), (2, 3, 1), (1, 1, 1), (4, 0, 4)]
)
def test_devices_share_the_cores(monkeypatch, cores, devices, threads):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cores)))
    assert fair_threads(devices) == threads


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
