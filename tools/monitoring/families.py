"""Every series that the programs tell, taken from their registries as they are at start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

__all__ = ["Family", "by_sample", "control_families", "node_families"]


@dataclass(slots=True)
class Family:
    """One metric: what it is called in queries, and which labels it can have."""

    name: str
    kind: str
    text: str
    samples: set[str] = field(default_factory=set)
    """Names of its series: a histogram has three."""
    labels: dict[str, set[str]] = field(default_factory=dict)
    """Values by label, as far as they are known before anything happened."""

    @property
    def is_closed(self) -> bool:
        """Its labels have no other values than these; facts about a build or a machine do."""
        return not self.name.endswith("_info")


def control_families() -> list[Family]:
    """What a control plane tells on its admin port."""
    from poolhouse_control.app import create_app, make_parts
    from poolhouse_control.settings import Settings

    parts = make_parts(Settings())
    create_app(parts.settings, parts)
    return _families(parts.registry)


def node_families() -> list[Family]:
    """What a device tells with ``--metrics-port``."""
    from poolhouse_node import __version__
    from poolhouse_node.cli.measuring import NodeMeasuring
    from poolhouse_node.ops.registry import make_registry
    from poolhouse_node.room.versions import PROTOCOL

    node = NodeMeasuring(make_registry(__version__, PROTOCOL))
    node.metrics.describe_node("cpu", "", "torch")
    return _families(node.registry)


def _families(registry: CollectorRegistry) -> list[Family]:
    return sorted((_family(metric) for metric in registry.collect()), key=lambda each: each.name)


def _family(metric: Metric) -> Family:
    name = f"{metric.name}_total" if metric.type == "counter" else metric.name
    family = Family(name, metric.type, metric.documentation)
    for sample in metric.samples:
        family.samples.add(sample.name)
        for label, value in sample.labels.items():
            family.labels.setdefault(label, set()).add(value)
    return family


def by_sample(families: Iterable[Family]) -> dict[str, list[Family]]:
    """Families by the names that queries use. Both programs may have one of the same name."""
    found: dict[str, list[Family]] = {}
    for family in families:
        for name in family.samples:
            found.setdefault(name, []).append(family)
    return found
