"""Compose files as Docker reads them: variables filled in, fragments merged, overrides applied."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["DEPLOY", "Compose", "read_compose"]

DEPLOY = Path(__file__).parents[2] / "deploy"
_VARIABLE = re.compile(r"\$\{(?P<name>\w+)(?::(?P<how>[-?])(?P<word>[^}]*))?\}")
_OWN = re.compile(r"poolhouse-(?:control|node|relay):")


class Compose:
    """What a file, with its overrides, says."""

    def __init__(self, content: dict[str, Any]) -> None:
        self.content = content

    @property
    def services(self) -> dict[str, dict[str, Any]]:
        """The services by name."""
        return self.content["services"]

    def environment(self, service: str) -> dict[str, str]:
        """A service's variables."""
        return {name: str(value) for name, value in self._of(service, "environment").items()}

    def image_environment(self, service: str) -> dict[str, str]:
        """Variables that its image sets, as the Dockerfile says."""
        if not self.is_ours(service):
            return {}
        part = self.services[service]["image"].partition(":")[0].removeprefix("poolhouse-")
        text = (DEPLOY / f"{part}.Dockerfile").read_text(encoding="utf-8")
        return dict(re.findall(r"((?:POOLHOUSE|NUMBA)_\w+)=(\S+)", text))

    def command(self, service: str) -> list[str]:
        """What follows the image's entry point."""
        return [str(word) for word in self.services[service].get("command", [])]

    def volumes(self, service: str) -> Iterator[tuple[str, str]]:
        """Source and target of each."""
        for volume in self.services[service].get("volumes", []):
            source, target, *_ = volume.split(":")
            yield source, target

    def is_ours(self, service: str) -> bool:
        """Whether its image is made from a Dockerfile of this repository."""
        return bool(_OWN.match(self.services[service]["image"]))

    def _of(self, service: str, key: str) -> Mapping[str, Any]:
        return self.services[service].get(key) or {}


def read_compose(*names: str, env: Mapping[str, str] | None = None) -> Compose:
    """Files of deploy/, the later ones laid over the earlier.

    Raises ``KeyError`` for a variable without a default that ``env`` lacks.
    """
    content: dict[str, Any] = {}
    for name in names:
        text = (DEPLOY / name).read_text(encoding="utf-8")
        content = _merged(content, _filled(yaml.safe_load(text), env or {}))
    return Compose(content)


def _filled(value: Any, env: Mapping[str, str]) -> Any:
    if isinstance(value, str):
        return _VARIABLE.sub(lambda found: _value(found, env), value)
    if isinstance(value, list):
        return [_filled(item, env) for item in value]
    if isinstance(value, dict):
        return {key: _filled(item, env) for key, item in value.items()}
    return value


def _value(found: re.Match[str], env: Mapping[str, str]) -> str:
    if env.get(found["name"]):
        return env[found["name"]]
    if found["how"] != "-":
        raise KeyError(found["name"])
    return found["word"]


def _merged(below: Any, above: Any) -> Any:
    if isinstance(below, dict) and isinstance(above, dict):
        return below | {key: _merged(below.get(key), value) for key, value in above.items()}
    return above
