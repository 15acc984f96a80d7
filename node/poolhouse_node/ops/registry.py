"""The registry of a device's series, with what they share."""

from __future__ import annotations

import hashlib
import platform
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Gauge, ProcessCollector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from prometheus_client.metrics_core import Metric

__all__ = ["NodeRegistry", "make_registry", "room_label"]

_OWN_PREFIX = "poolhouse_"


class NodeRegistry(CollectorRegistry):
    """Leaves out the ``_created`` series, and names the room in every one of ours, if wanted."""

    room = ""
    """What the label ``room`` says; without it there is no such label."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            samples = [each for each in metric.samples if not each.name.endswith("_created")]
            if self.room and metric.name.startswith(_OWN_PREFIX):
                named = {"room": self.room}
                samples = [each._replace(labels={**each.labels, **named}) for each in samples]
            metric.samples = samples
            yield metric


def make_registry(version: str, protocol: int) -> NodeRegistry:
    """A registry that holds the process and the build."""
    registry = NodeRegistry()
    ProcessCollector(registry=registry)
    build = Gauge(
        "poolhouse_build_info",
        "Version of this program, room protocol and Python; always 1.",
        ("version", "protocol", "python"),
        registry=registry,
    )
    build.labels(version, str(protocol), platform.python_version()).set(1)
    return registry


def room_label(code: str) -> str:
    """A short name for a room that does not show its code.

    It tells rooms apart, it hides nothing: whoever tries all codes finds the one.
    """
    return hashlib.sha256(code.encode()).hexdigest()[:8]
