"""Every POOLHOUSE_ variable that some part of the program reads, collected from the code."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from poolhouse_control.relay import coturn_settings
from poolhouse_control.settings import describe
from poolhouse_node.cli import secret_files, state
from poolhouse_node.cli.main import app

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["known_variables"]


def known_variables() -> set[str]:
    """Settings of control plane and coturn, options, secrets, and the two folders."""
    control = {key.variable for key in (*describe(), *coturn_settings.describe())}
    secrets = {*secret_files.FROM_FILES, *(f"{name}_FILE" for name in secret_files.FROM_FILES)}
    return control | secrets | set(_options(typer.main.get_command(app))) | {
        state.STATE, "POOLHOUSE_CACHE",
    }  # fmt: skip


def _options(command: Any) -> Iterator[str]:
    for parameter in command.params:
        named = parameter.envvar or ()
        yield from [named] if isinstance(named, str) else named
    for child in getattr(command, "commands", {}).values():
        yield from _options(child)
