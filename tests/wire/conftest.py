"""Hypothesis without its deadline: a busy machine is not a fault of the wire."""

from __future__ import annotations

from hypothesis import settings

settings.register_profile("poolhouse", deadline=None)
settings.load_profile("poolhouse")
