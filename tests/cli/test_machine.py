"""What this machine lends, and with how many threads."""

import os
import socket

import pytest

from poolhouse_node.cli import machine
from poolhouse_node.cli.machine import (
    default_pledge_gb,
    device_name,
    fair_threads,
    free_cores,
)


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
    assert free_cores((tmp_path,)) == cores


@pytest.mark.parametrize(
    ("limit_gb", "devices", "pledge_gb"),
    [
        (None, 1, 32.0),
        (None, 3, 10.7),
        (64, 1, 32.0),  # of a machine with so much memory: no limit
        (40, 1, 36.0),
        (12, 1, 8.0),
        (6, 1, 3.0),
        (24, 2, 8.0),
        (0.5, 1, 0.2),
        (0.01, 1, 0.1),
    ],
)
def test_a_containers_limit_is_lent_and_not_the_machines_memory(
    monkeypatch, tmp_path, limit_gb, devices, pledge_gb
):
    monkeypatch.setattr(machine, "memory_gb", lambda: 64.0)
    text = "max" if limit_gb is None else str(round(limit_gb * 2**30))
    (tmp_path / "memory.max").write_text(text)
    assert default_pledge_gb(devices, "cpu", (tmp_path,)) == pledge_gb


def test_a_large_container_lends_no_more_than_rooms_count(monkeypatch, tmp_path):
    monkeypatch.setattr(machine, "memory_gb", lambda: 512.0)
    (tmp_path / "memory.max").write_text(str(256 * 2**30))
    assert default_pledge_gb(1, "cpu", (tmp_path,)) == 64.0


def test_pods_with_long_names_are_different_devices(monkeypatch):
    long_name = "release-with-a-long-name-poolhouse-gpu-pool"
    names = set()
    for ordinal in range(12):
        monkeypatch.setattr(socket, "gethostname", lambda: f"{long_name}-{ordinal}.pool.svc")  # noqa: B023
        names |= {device_name(None)}
        assert device_name(f"{long_name}-{ordinal}") == device_name(None)
    assert len(names) == 12
    assert max(map(len, names)) <= 40


def test_a_name_that_was_said_counts(monkeypatch):
    monkeypatch.setattr(socket, "gethostname", lambda: "attic.lan")
    assert device_name("cellar") == "cellar"
    assert device_name("") == device_name(None) == "attic"
