"""A TOML file with the defaults of options, named as on the command line."""

from __future__ import annotations

import tomllib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["SettingsFileError", "read_settings_file"]


class SettingsFileError(Exception):
    """The file cannot be used; the text says which line or name."""


def read_settings_file(file: Path, program: Any) -> dict[str, Any]:
    """The file as click's ``default_map`` for ``program``: a table per command, keys as options.

    ``[host]`` with ``max-tokens = 100`` stands for ``poolhouse host --max-tokens 100``. Raises
    :class:`SettingsFileError`, also for a name that no command or option has: a setting that does
    nothing is worse than none.
    """
    try:
        tables = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise SettingsFileError(f"{file} cannot be used as settings: {error}") from error
    return _of_command(tables, program, str(file))


def _of_command(table: Mapping[str, Any], command: Any, where: str) -> dict[str, Any]:
    subcommands: Mapping[str, Any] = getattr(command, "commands", {})
    parameters = {name: option.name for option in command.params for name in _names(option)}
    found: dict[str, Any] = {}
    for key, value in table.items():
        if key in subcommands and isinstance(value, dict):
            found[key] = _of_command(value, subcommands[key], f"{where} [{key}]")
        elif key.replace("_", "-") in parameters:
            found[parameters[key.replace("_", "-")]] = value
        else:
            raise SettingsFileError(f"{where}: there is no command or option named {key!r}.")
    return found


def _names(option: Any) -> list[str]:
    """``max-tokens`` for ``--max-tokens``; an argument has none."""
    return [text.removeprefix("--") for text in option.opts if text.startswith("--")]
