"""The program ``poolhouse`` and its subcommands. Every heavy import is made by its command."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Annotated

import typer

from poolhouse_node import __version__
from poolhouse_node.cli import options as opt
from poolhouse_node.cli.bench.commands import bench_app
from poolhouse_node.cli.models_app import models_app
from poolhouse_node.cli.room_app import room_app
from poolhouse_node.cli.room_commands import ask, host, join, up
from poolhouse_node.cli.running import run
from poolhouse_node.cli.secret_files import read_secret_files
from poolhouse_node.cli.turn.commands import turn_app

__all__ = ["app"]

app = typer.Typer(
    name="poolhouse",
    help="Run one large language model over machines you own.",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command(rich_help_panel="Rooms")(up)
app.command(rich_help_panel="Rooms")(host)
app.command(rich_help_panel="Rooms")(join)
app.command(rich_help_panel="Rooms")(ask)
app.add_typer(room_app, name="room", rich_help_panel="Rooms")
app.add_typer(models_app, name="models")
app.add_typer(bench_app, name="bench")
app.add_typer(turn_app, name="turn")


def _version(*, wanted: bool) -> None:
    if wanted:
        print(f"poolhouse {__version__}")
        raise typer.Exit


def _load_config(context: typer.Context, file: Path | None) -> Path | None:
    """Defaults of every command from a TOML file: ``[host]``, ``[join]``, ``[models.pull]`` ..."""
    if file is None:
        return None
    from poolhouse_node.cli.settings_file import SettingsFileError, read_settings_file

    try:
        context.default_map = read_settings_file(file, context.command)
    except SettingsFileError as error:
        raise typer.BadParameter(str(error)) from error
    return file


@app.callback()
def root(
    context: typer.Context,
    config: Annotated[
        Path | None,
        typer.Option(
            help="TOML file with settings, a table per command.",
            envvar="POOLHOUSE_CONFIG",
            callback=_load_config,
            is_eager=True,
        ),
    ] = None,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            help="Print the version and end.",
            callback=lambda value: _version(wanted=value),
            is_eager=True,
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log what happens.")] = False,
) -> None:
    read_secret_files(os.environ)
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")


# ---- servers ------------------------------------------------------------------------------------


@app.command(rich_help_panel="Servers")
def control(
    host: Annotated[
        str | None, typer.Option(help="Address to listen on.", show_default="every one")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="0 takes a free one.", show_default="8080")
    ] = None,
    admin_host: Annotated[
        str | None, typer.Option(help="Address of metrics and health.", show_default="127.0.0.1")
    ] = None,
    admin_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Its port.", show_default="9090")
    ] = None,
    redis: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Redis or Valkey that replicas share. With a password: POOLHOUSE_REDIS_URL.",
            show_default="none: memory",
        ),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Say in one JSON line where it listens.")
    ] = False,
) -> None:
    """The control plane: signaling, relay credentials, metrics.

    Every other setting is a POOLHOUSE_* variable; see docs/reference/settings.md.
    """
    from poolhouse_node.cli.control import run_control

    run(
        run_control(
            as_json=as_json,
            host=host,
            port=port,
            admin_host=admin_host,
            admin_port=admin_port,
            redis_url=redis,
        )
    )


# ---- this machine -------------------------------------------------------------------------------


@app.command(rich_help_panel="This machine")
def doctor(signal: opt.Signal = opt.DEFAULT_SIGNAL, as_json: opt.Json = False) -> None:
    """What this machine can do, and what is missing."""
    from poolhouse_node.cli.doctor import examine

    run(examine(signal.split(","), as_json=as_json))


@app.command(rich_help_panel="This machine")
def health(
    url: Annotated[
        str,
        typer.Argument(
            help="Its address of readiness or liveness, over http.", envvar="POOLHOUSE_HEALTH_URL"
        ),
    ] = "http://127.0.0.1:9090/readyz",
) -> None:
    """Whether a control plane or a device answers and is well: exit status 0, else 1."""
    from poolhouse_node.cli.health import check_health

    run(check_health(url))
