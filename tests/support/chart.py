"""The Helm chart, rendered without a cluster."""

from __future__ import annotations

import functools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import helm_python
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = [
    "CHART",
    "SCENARIOS",
    "Pod",
    "Refused",
    "containers",
    "of_kind",
    "pods",
    "render",
    "render_notes",
    "scenario",
]

ROOT: Final = Path(__file__).resolve().parents[2]
CHART: Final = ROOT / "helm" / "poolhouse"
SCENARIOS: Final = sorted(path.stem for path in (CHART / "ci").glob("*.yaml"))

Refused = (helm_python.HelmValuesError, helm_python.HelmRenderError)
"""What rendering raises when values are no good."""

type Object = dict[str, Any]


@functools.cache
def _chart() -> helm_python.Chart:
    return helm_python.Chart.load(CHART)


@functools.cache
def _texts(values: str, name: str) -> dict[str, str]:
    return _chart().render(json.loads(values), name=name, namespace="rooms")


def scenario(name: str) -> dict[str, Any]:
    """The values of a file in the chart's ci/."""
    return yaml.safe_load((CHART / "ci" / f"{name}.yaml").read_text(encoding="utf-8"))


def render(values: dict[str, Any], name: str = "demo") -> list[Object]:
    """Every object that is installed with these values. Raises one of :data:`Refused`."""
    texts = _texts(json.dumps(values), name)
    files = (text for path, text in texts.items() if not path.endswith("NOTES.txt"))
    return [found for text in files for found in _loaded(text)]


def _loaded(text: str) -> list[Object]:
    return [found for found in yaml.load_all(text, Loader=_StrictLoader) if found is not None]


class _StrictLoader(yaml.CSafeLoader):
    """YAML in which no key comes twice in a map: Kubernetes takes the last in silence."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        twice = {key for key in keys if keys.count(key) > 1}
        assert not twice, f"{sorted(twice)} twice in a map{node.start_mark}"
        return super().construct_mapping(node, deep)


def render_notes(values: dict[str, Any], name: str = "demo") -> str:
    """What is shown after an installation."""
    texts = _texts(json.dumps(values), name)
    return next(text for path, text in texts.items() if path.endswith("NOTES.txt"))


def of_kind(objects: Sequence[Object], *kinds: str) -> list[Object]:
    """Those of these kinds."""
    return [found for found in objects if found["kind"] in kinds]


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod, or the template of pods, and the object it stands in."""

    owner: Object
    metadata: dict[str, Any]
    spec: dict[str, Any]

    @property
    def component(self) -> str:
        """Which part of poolhouse it is."""
        return self.metadata["labels"]["app.kubernetes.io/component"]


def pods(objects: Sequence[Object]) -> list[Pod]:
    """Every pod that these objects make."""
    found = []
    for owner in of_kind(objects, "Deployment", "StatefulSet", "Pod"):
        at = owner if owner["kind"] == "Pod" else owner["spec"]["template"]
        found.append(Pod(owner, at["metadata"], at["spec"]))
    return found


def containers(pod: Pod) -> Iterator[dict[str, Any]]:
    """Of a pod, those that run first among them."""
    yield from pod.spec.get("initContainers") or []
    yield from pod.spec["containers"]
