"""``poolhouse turn config``: prints or writes a ``turnserver.conf``."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any

from poolhouse_control.errors import SettingsError
from poolhouse_control.relay.coturn import render
from poolhouse_control.relay.coturn_settings import CoturnSettings
from poolhouse_control.settings import Settings
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.running import say

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["LINK_ALLOCATIONS", "write_config"]

LINK_ALLOCATIONS = 16
"""Both devices of a link ask at two addresses of the relay for each of its four connections, also
when a direct path is found."""


async def write_config(assignments: Sequence[str], output: Path | None, *, try_it: bool) -> int:
    """Render the file; with ``try_it`` coturn reads it before it goes anywhere."""
    coturn = CoturnSettings.load(os.environ, **_arguments(assignments))
    control = Settings.load(os.environ)
    text = render(coturn, secrets=control.turn_secrets, labels=control.turn_labels)
    if try_it:
        await _try(text)
    if output is None:
        sys.stdout.write(text)
    else:
        _write(output, text)
        say(f"Wrote {output}; only its owner can read it: it may hold secrets.")
    say(_capacity(coturn.most_allocations))
    return 0


def _capacity(allocations: int) -> str:
    """What people ask themselves when links fail that worked with fewer devices."""
    links = allocations // LINK_ALLOCATIONS
    return (
        f"It holds {allocations} allocations at a time, enough for {links} links between two "
        "devices that both ask for a relay. For more raise POOLHOUSE_COTURN_BPS_CAPACITY and "
        "_TOTAL_QUOTA."
    )


def _arguments(assignments: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals:
            raise SettingsError(f"--set {assignment}: write NAME=VALUE.")
        values[name.strip().replace("-", "_")] = value
    return values


async def _try(text: str) -> None:
    from poolhouse_control.relay.coturn_trial import try_with_coturn

    complaints = await try_with_coturn(text)
    if complaints:
        raise CommandFailed("coturn does not take this file: " + "; ".join(complaints))


def _write(output: Path, text: str) -> None:
    """Never readable by others, not even for a moment."""
    beside = output.with_name(f".{output.name}.{os.getpid()}")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
        beside.replace(output)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise CommandFailed(f"{output} cannot be written: {error.strerror}.") from None
