"""What this machine lends, and with how many threads."""

import os

import pytest

from poolhouse_node.cli.machine import fair_threads, free_cores, has_wide_vectors


@pytest.mark.parametrize(
    ("cores", "devices", "threads"),
    [(8, 1, 8), (8, 3, 2), (2, 3, 1), (1.6, 1, 2), (1.4, 1, 1), (-3, 1, 1), (4, 0, 4)],
)
def test_devices_share_the_free_cores(cores, devices, threads):
    assert fair_threads(cores, devices) == threads


@pytest.mark.parametrize(
    ("quota", "load", "cores"),
    [
        (None, 0.0, 8),
        (None, 3.5, 4.5),
        ("max 100000", 0.0, 8),
        ("250000 100000", 0.0, 2.5),
        ("250000 100000", 7.0, 1),
        ("nonsense", 0.0, 8),
        ("1 0", 0.0, 8),
    ],
)
def test_free_cores_know_load_and_container_limits(monkeypatch, tmp_path, quota, load, cores):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    path = tmp_path / "cpu.max"
    if quota is not None:
        path.write_text(quota)
    assert free_cores(path) == cores


@pytest.mark.parametrize(
    ("flags", "wide"), [("fpu sse2 avx2 bmi2", True), ("fpu sse2", False), (None, False)]
)
def test_wide_vectors_are_read_from_what_the_kernel_says(tmp_path, flags, wide):
    path = tmp_path / "cpuinfo"
    if flags is not None:
        path.write_text(f"flags\t\t: {flags} \n")
    assert has_wide_vectors(path) == wide
