"""Troubles that once went wrong in a simulated room, each with the seed's plan made small."""

import pytest

from tests.support.chaos import run_plan
from tests.support.chaos_plan import Plan, Trouble

FACTS = {
    "seed": 0,
    "workers": 2,
    "guests": 1,
    "split": (4, 4, 4),
    "weather": "calm",
    "redeal_after_s": 60.0,
    "max_tokens": 20,
    "compute_s": 0.02,
    "associations": 1,
}

FOUND = {
    "a device asks again before its first question is answered": (
        {"compute_s": 0.1},
        Trouble(1, "ask", "guest-1"),
        Trouble(1.1, "ask", "guest-1"),
    ),
    "a device asks while its host is away": (
        {"seed": 1},
        Trouble(1, "host killed", "host", for_s=12),
        Trouble(9, "ask", "worker-1"),
    ),
    "a device asks again while its question waits for a host that starts again": (
        {"max_tokens": 40, "compute_s": 0.1},
        Trouble(1, "ask", "worker-1"),
        Trouble(1.5, "ask", "guest-1"),
        Trouble(2, "host killed", "host", for_s=8),
        Trouble(35, "ask", "guest-1"),
    ),
    "a device asks again when its host died right behind an answer": (
        {"max_tokens": 8, "compute_s": 0.002},
        Trouble(1, "ask", "guest-1"),
        Trouble(2, "host killed", "host", for_s=8),
        Trouble(3.5, "ask", "guest-1"),
    ),
    "a link breaks and is mended between two questions": (
        {},
        Trouble(1, "ask", "host"),
        Trouble(10, "link loss", "host", "worker-1"),
        Trouble(30, "ask", "host"),
    ),
    "a worker is started again between two questions": (
        {},
        Trouble(1, "ask", "guest-1"),
        Trouble(10, "kill", "worker-2", for_s=2),
        Trouble(40, "ask", "guest-1"),
    ),
    "a host comes back with a split for a device that does not": (
        {"guests": 0},
        Trouble(1, "kill", "worker-2", for_s=None),
        Trouble(3, "host killed", "host", for_s=3),
        Trouble(45, "ask", "worker-1"),
    ),
    "a guest that saw more than its new host knows loses its link": (
        {
            "seed": 13014,
            "workers": 5,
            "guests": 2,
            "split": (4, 1, 2, 3, 1, 1),
            "weather": "breeze",
            "compute_s": 0.002,
        },
        Trouble(0.88, "ask", "guest-1"),
        Trouble(4.81, "host killed", "host", for_s=11.3),
        Trouble(24.4, "cut", "host", "worker-5", for_s=48.5),
        Trouble(50.84, "link loss", "host", "guest-2"),
    ),
    "a device comes back while the layers are dealt without it": (
        {"workers": 3, "split": None, "redeal_after_s": 20.0},
        Trouble(0.5, "freeze", "worker-2", for_s=36.5),
    ),
    "stripes of a frozen host are dead at the other end alone": (
        {
            "seed": 5840,
            "workers": 1,
            "split": (10, 2),
            "weather": "breeze",
            "redeal_after_s": 20.0,
            "max_tokens": 4,
            "compute_s": 1.0,
            "associations": 3,
        },
        Trouble(23, "ask", "host"),
        Trouble(36, "ask", "host"),
        Trouble(49.2, "ask", "host"),
        Trouble(50.4, "ask", "worker-1"),
        Trouble(51.5, "freeze", "host", for_s=18.2),
    ),
}


@pytest.mark.parametrize("found", list(FOUND))
def test_what_once_went_wrong(found):
    facts, *troubles = FOUND[found]
    report = run_plan(Plan(**(FACTS | facts), troubles=tuple(troubles)))
    assert not report.wrong, str(report)
    may_be_refused = found.startswith("a device asks")
    assert report.well + may_be_refused >= report.asked, str(report)
