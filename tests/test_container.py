"""What a container or a unit may use, read from files that stand for its control groups."""

import pytest

from poolhouse_node.container import (
    core_limit,
    memory_left_bytes,
    memory_limit_bytes,
    own_groups,
)

GIB = 2**30


def group(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)
    return folder


@pytest.mark.parametrize(
    ("membership", "folders"),
    [
        ("0::/\n", [""]),
        ("0::/system.slice/join.service\n", ["system.slice/join.service", "system.slice", ""]),
        ("12:pids:/other\n0::/system.slice\n", ["system.slice", ""]),
        ("0::/../../elsewhere\n", [""]),
        ("0::/gone\n", [""]),
        ("12:pids:/other\n", [""]),
        (None, [""]),
    ],
)
def test_a_group_and_those_above_it_are_found(tmp_path, membership, folders):
    group(tmp_path / "root/system.slice/join.service")
    path = tmp_path / "membership"
    if membership is not None:
        path.write_text(membership)
    found = own_groups(tmp_path / "root", path)
    assert found == tuple(tmp_path / "root" / folder for folder in folders)


def test_the_least_limit_on_the_way_up_counts(tmp_path):
    inner = group(tmp_path / "a/b", memory_max="max\n", cpu_max="400000 100000\n")
    middle = group(tmp_path / "a", memory_max=f"{4 * GIB}\n", cpu_max="250000 100000\n")
    outer = group(tmp_path, memory_max=f"{8 * GIB}\n", cpu_max="max 100000\n")
    assert memory_limit_bytes((inner, middle, outer)) == 4 * GIB
    assert memory_limit_bytes((inner,)) is None
    assert core_limit((inner, middle, outer)) == 2.5
    assert core_limit((outer,)) is None


def test_cached_files_are_left(tmp_path):
    files = {
        "memory_max": "4000000",
        "memory_current": "3000000",
        "memory_stat": "anon 5\ninactive_file 700000\nactive_file 300000\n",
    }
    assert memory_left_bytes((group(tmp_path, **files),)) == 2_000_000
    assert memory_left_bytes((group(tmp_path, memory_current="9000000"),)) == 0
    assert memory_left_bytes((group(tmp_path, memory_max="max"),)) is None


def test_a_limit_without_figures_of_use_still_holds(tmp_path):
    assert memory_left_bytes((group(tmp_path, memory_max="4000000"),)) == 4_000_000


@pytest.mark.parametrize("text", ["", "nonsense", "1 0", "1 2 3", "\u00b9"])
def test_what_cannot_be_read_limits_nothing(tmp_path, text):
    here = group(tmp_path, memory_max=text, memory_current=text, memory_stat=text, cpu_max=text)
    assert (core_limit((here,)), memory_left_bytes((tmp_path / "none",))) == (None, None)
    if text.strip():
        assert memory_limit_bytes((here,)) is None


def test_this_process_is_in_a_group_or_none():
    assert own_groups()
    assert memory_limit_bytes() is None or memory_limit_bytes() > 0
    assert core_limit() is None or core_limit() > 0
