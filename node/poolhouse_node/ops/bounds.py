"""Bounds of the histograms: one stands exactly on every threshold of an alert or an objective."""

from __future__ import annotations

from typing import Final

__all__ = [
    "ENGINE_STEP_S",
    "FIRST_TOKEN_S",
    "GENERATION_S",
    "INTER_TOKEN_S",
    "LAP_S",
    "LOAD_S",
    "LOOP_LAG_S",
    "QUEUE_S",
    "RTT_S",
    "TOKENS",
]

FIRST_TOKEN_S: Final = (0.1, 0.25, 0.5, 1, 2, 3, 5, 8, 12, 20, 40, 80, 160)
"""The prefill of a room over the internet is slow; 20 s is the objective."""
INTER_TOKEN_S: Final = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2.5, 10, 30)
LAP_S: Final = (0.01, 0.02, 0.04, 0.06, 0.1, 0.15, 0.25, 0.5, 1, 2, 5, 10, 30, 90)
"""30 s and 90 s are the first timeouts of a lap (liveness, section 4); 2 s is the alert."""
ENGINE_STEP_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.08, 0.15, 0.3, 0.6, 1.2)
QUEUE_S: Final = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 120, 300)
GENERATION_S: Final = (1, 2, 5, 10, 20, 40, 60, 120, 300, 600, 1200)
RTT_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.5)
LOAD_S: Final = (1, 5, 10, 30, 60, 120, 300, 600, 1200, 3600)
LOOP_LAG_S: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
"""As of the control plane: one name, one meaning."""
TOKENS: Final = tuple(2**power for power in range(4, 17))
