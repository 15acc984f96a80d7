"""The room of an invite link that was made before it: its host is given the code and the key."""

from __future__ import annotations

import secrets
from dataclasses import replace
from typing import TYPE_CHECKING

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.rooms import Place, make_invite, read_invite
from poolhouse_node.room.proofs import make_secret
from poolhouse_node.wire.codes import make_code, parse_code

if TYPE_CHECKING:
    from collections.abc import Mapping

    from poolhouse_node.cli.host import HostOptions

__all__ = ["INVITE", "new_invite", "with_invite"]

INVITE = "POOLHOUSE_INVITE"


def new_invite(signal: str) -> str:
    """A link with a new code and a new key, for devices that find their room at ``signal``."""
    place = Place.read(signal, "libdatachannel")
    return make_invite(place, make_code(secrets.token_bytes), make_secret(secrets.token_bytes))


def with_invite(options: HostOptions, environment: Mapping[str, str]) -> HostOptions:
    """Open the room of the link in the environment, if there is one.

    Raises :class:`CommandFailed` when it is no link with a key, or ``--code`` says another room.
    """
    link = environment.get(INVITE, "").strip()
    if not link:
        return options
    invite = read_invite(link)
    if not invite.key:
        raise CommandFailed(
            f"{INVITE} has no key behind a #: make a link with `poolhouse room new`, or give the "
            "code alone with --code."
        )
    if options.code and parse_code(options.code) != invite.code:
        raise CommandFailed(f"--code names another room than the link of {INVITE}: give only one.")
    return replace(options, code=invite.code, key=invite.key)
