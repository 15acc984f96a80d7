"""The subcommands of ``poolhouse turn``. Every heavy import is made by its command."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from poolhouse_node.cli import options as opt
from poolhouse_node.cli.running import run

__all__ = ["turn_app"]

_Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write it there instead of on stdout."),
]
_Authority = Annotated[
    Path | None,
    typer.Option("--ca", metavar="FILE", help="Trust this certificate too, in PEM."),
]
_SecretFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE",
        help="The file that the control plane signs with.",
        envvar="POOLHOUSE_TURN_SECRET_FILE",
    ),
]
_Json = opt.Json

turn_app = typer.Typer(
    help="The relay: its file, a proof that it relays, a new secret.", no_args_is_help=True
)


@turn_app.command("config")
def turn_config(
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of coturn; repeatable."),
    ] = None,
    output: _Output = None,
    try_it: Annotated[
        bool, typer.Option("--try", help="Have the coturn of this machine read it first.")
    ] = False,
) -> None:
    """A turnserver.conf that is safe by default, from POOLHOUSE_COTURN_* and the relay's secrets.

    Fails on everything that coturn would ignore. See docs/how-to/relay.md.
    """
    from poolhouse_node.cli.turn.config import write_config

    run(write_config(settings or [], output, try_it=try_it))


@turn_app.command("check")
def turn_check(
    control: Annotated[
        str,
        typer.Option(metavar="URL", help="The control plane.", envvar="POOLHOUSE_CONTROL"),
    ] = "localhost:8080",
    authority: _Authority = None,
    as_json: _Json = False,
) -> None:
    """Prove that a relay works, and that it does not reach into its own network.

    Takes credentials from POST /api/turn, then over UDP, TCP and TLS: allocates, sends data
    through the relay, and tries private peers, which must be refused. An API token in
    POOLHOUSE_API_TOKEN is shown if it is set.
    """
    from poolhouse_node.cli.turn.check import check

    run(check(control, authority, as_json=as_json))


@turn_app.command("rotate")
def turn_rotate(
    secret_file: _SecretFile = None,
    retire: Annotated[
        bool, typer.Option("--retire", help="Only end the secret before the newest.")
    ] = False,
    force: Annotated[
        bool, typer.Option("--force", help="Cut off credentials that are still in use.")
    ] = False,
    as_json: _Json = False,
) -> None:
    """A new relay secret, without a restart of coturn or the control plane.

    Needs coturn's secrets in SQLite or Redis (POOLHOUSE_COTURN_SECRETS). Credentials signed with
    the secret before stay good.
    """
    from poolhouse_node.cli.turn.rotate import change_secret

    run(change_secret(secret_file, retire_only=retire, force=force, as_json=as_json))
