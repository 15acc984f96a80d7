"""Secrets in files: what an orchestrator mounts is seen in no process list and no environment."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import typer

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["FROM_FILES", "read_secret_files"]

FROM_FILES: Final = ("POOLHOUSE_ROOM", "POOLHOUSE_INVITE", "POOLHOUSE_API_TOKEN")
"""Variables whose value may lie in a file that the variable with ``_FILE`` behind it names."""
SIZE_BYTES_MAX = 64 * 1024


def read_secret_files(environment: MutableMapping[str, str]) -> None:
    """Fill the variables that are not set themselves. Raises ``typer.BadParameter``."""
    for name in FROM_FILES:
        path = environment.get(f"{name}_FILE", "")
        if path and not environment.get(name):
            environment[name] = _read(f"{name}_FILE", Path(path).expanduser())


def _read(variable: str, path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(SIZE_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"{variable} names {path}, which cannot be read: {error}."
        ) from error
    if not text.strip():
        raise typer.BadParameter(f"{variable} names {path}, which is empty.")
    if len(text) > SIZE_BYTES_MAX:
        raise typer.BadParameter(f"{variable} names {path}, which is too long to be a secret.")
    return text.strip()
