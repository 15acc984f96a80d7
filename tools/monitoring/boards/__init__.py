"""The dashboards. In expressions ``ON`` stands for the chosen namespaces, jobs and instances."""

from __future__ import annotations

from tools.monitoring.boards.node import NODE
from tools.monitoring.boards.overview import OVERVIEW
from tools.monitoring.boards.rooms import ROOMS
from tools.monitoring.boards.signaling import SIGNALING

__all__ = ["BOARDS"]

BOARDS = (OVERVIEW, SIGNALING, ROOMS, NODE)
