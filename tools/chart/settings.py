"""Which settings and options a person may give through the chart: those that the code has."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["control_settings", "coturn_settings", "host_options", "node_settings"]

JOINED = {"POOLHOUSE_TURN_ALLOWED_ORIGINS"}
"""The chart sets it, with what a person says behind its own."""
READ = {"POOLHOUSE_TURN_HOST"}
"""The chart reads it, to let the control plane ask that relay whether it is there."""
OF_THE_CHART = {"wait", "deny-unknown", "code"}
"""Options of `poolhouse host` that are values of their own, or that the invite link tells."""
SECRET = {"POOLHOUSE_ROOM", "POOLHOUSE_API_TOKEN", "POOLHOUSE_INVITE"}


def control_settings(templates: Path) -> list[str]:
    """Variables of the control plane but secrets and those that the chart decides."""
    from poolhouse_control.settings import describe

    return _allowed(describe(), _named(templates, "_control.tpl") - JOINED - READ)


def coturn_settings(templates: Path) -> list[str]:
    """Variables of `poolhouse turn config` but secrets and those that the chart decides."""
    from poolhouse_control.relay.coturn_settings import describe

    return _allowed(describe(), _named(templates, "_relay.tpl"))


def node_settings(templates: Path) -> list[str]:
    """Variables of the commands that pods of devices run, but those that the chart decides."""
    taken = SECRET | _named(templates, "_devices.tpl", "host/statefulset.yaml")
    found = {
        parameter.envvar
        for name in ("join", "host")
        for parameter in _command(name).params
        if parameter.envvar
    }
    return sorted(found - taken)


def host_options() -> list[str]:
    """Options of `poolhouse host` that take a value and have no variable."""
    named = {
        parameter.opts[0].removeprefix("--")
        for parameter in _command("host").params
        if not parameter.envvar and not getattr(parameter, "is_flag", False)
    }
    return sorted(named - OF_THE_CHART - {"help"})


def _allowed(keys: list[Any], taken: set[str]) -> list[str]:
    """A secret is known by the setting beside it that names a file instead."""
    variables = {key.variable for key in keys}
    files = {variable for variable in variables if variable.endswith("_FILE")}
    return sorted(variables - files - {file.removesuffix("_FILE") for file in files} - taken)


def _named(templates: Path, *files: str) -> set[str]:
    texts = ((templates / file).read_text(encoding="utf-8") for file in files)
    return {name for text in texts for name in re.findall(r"\bPOOLHOUSE_[A-Z_]+", text)}


def _command(name: str) -> Any:
    from poolhouse_node.cli.main import app

    return typer.main.get_command(app).commands[name]  # type: ignore[attr-defined]
