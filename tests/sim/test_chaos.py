"""Rooms under trouble drawn from seeds, in virtual time: nothing is ever wrong, everything ends.

Real host, worker, guest, link and generation code; fake connections and model parts. What must
hold is in :mod:`tests.support.chaos`. A seed that fails is mended and becomes a plan of
``test_chaos_found.py``.
"""

import pytest

from tests.support.chaos import run_plan
from tests.support.chaos_plan import draw_plan

CHUNK = 50


def chunks(first: int, last: int) -> list:
    return [
        pytest.param(range(seed, seed + CHUNK), id=f"{seed}-{seed + CHUNK - 1}")
        for seed in range(first, last, CHUNK)
    ]


def nothing_is_wrong(seeds: range) -> None:
    reports = [run_plan(draw_plan(seed)) for seed in seeds]
    wrong = [report for report in reports if report.wrong]
    assert not wrong, "\n\n".join(map(str, wrong[:3]))
    assert sum(report.well for report in reports) >= len(reports)  # the trouble left something


@pytest.mark.parametrize("seeds", chunks(0, 50))
def test_some_seeds(seeds):
    nothing_is_wrong(seeds)


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("seeds", chunks(50, 1_000))
def test_a_thousand_seeds(seeds):
    nothing_is_wrong(seeds)


@pytest.mark.long
@pytest.mark.parametrize("seeds", chunks(1_000, 11_000))
def test_ten_thousand_seeds(seeds):
    nothing_is_wrong(seeds)
