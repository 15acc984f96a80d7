"""Which GPU a process computes on, and what it lends of it."""

import ctypes

import pytest

from poolhouse_node.cli import gpus, machine
from poolhouse_node.cli.gpus import Gpu, find_gpus, gpu_of, spread

TWO = (Gpu("first", 80 << 30), Gpu("second", 24 << 30))


@pytest.fixture
def two_gpus(monkeypatch):
    for module in (gpus, machine):
        monkeypatch.setattr(module, "find_gpus", lambda: TWO)


@pytest.mark.parametrize(
    ("device", "found"),
    [("auto", TWO[0]), ("cuda", TWO[0]), ("cuda:1", TWO[1]), ("cuda:2", None), ("cpu", None)],
)
def test_a_device_is_a_gpu_or_none(two_gpus, device, found):
    assert gpu_of(device) == found


@pytest.mark.parametrize(
    ("device", "count", "given"),
    [
        ("auto", 3, ["cuda:0", "cuda:1", "cuda:0"]),
        ("cuda", 2, ["cuda:0", "cuda:1"]),
        ("cuda:1", 2, ["cuda:1", "cuda:1"]),
        ("cpu", 2, ["cpu", "cpu"]),
    ],
)
def test_devices_are_spread_over_gpus(two_gpus, device, count, given):
    assert spread(device, count) == given


def test_without_gpus_every_device_is_what_was_asked_for(monkeypatch):
    monkeypatch.setattr(gpus, "find_gpus", tuple)
    assert spread("auto", 2) == ["auto", "auto"]
    assert gpu_of("auto") is None


@pytest.mark.parametrize(
    ("devices", "device", "pledge_gb"),
    [(1, "cuda:0", 64.0), (2, "cuda:0", 64.0), (4, "cuda:0", 34.5), (1, "cuda:1", 20.1)],
)
def test_most_of_a_gpu_is_lent(two_gpus, devices, device, pledge_gb):
    assert machine.default_pledge_gb(devices, device) == pledge_gb


def test_a_device_says_its_gpu(two_gpus):
    assert machine.device_meta(pledge_gb=1, device="cuda:1")["gpu"] == "second"
    assert machine.device_meta(pledge_gb=1)["gpu"].endswith("CPU")


def test_a_driver_that_is_not_there_has_no_gpus():
    assert find_gpus("libno-such-driver.so.1") == ()


class Driver:
    """As NVIDIA's answers, by pointers."""

    def __init__(self, status=0):
        self.status = status

    def cuInit(self, flags):
        return self.status

    def cuDeviceGetCount(self, count):
        count._obj.value = 2
        return 0

    def cuDeviceGet(self, device, number):
        device._obj.value = number

    def cuDeviceGetName(self, name, size, device):
        name.value = b"GPU %d" % device.value

    def cuDeviceTotalMem_v2(self, memory, device):
        memory._obj.value = (device.value + 1) << 30


@pytest.mark.parametrize(
    ("status", "found"), [(0, (Gpu("GPU 0", 1 << 30), Gpu("GPU 1", 2 << 30))), (100, ())]
)
def test_the_driver_is_asked(monkeypatch, status, found):
    monkeypatch.setattr(ctypes, "CDLL", lambda name: Driver(status))
    assert find_gpus(f"libdriver-{status}.so") == found
