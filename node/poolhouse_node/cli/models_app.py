"""The subcommands of ``poolhouse models``. Every heavy import is made by its command."""

from __future__ import annotations

from typing import Annotated

import typer

from poolhouse_node.cli import options as opt  # noqa: TC001 - typer reads them at run time
from poolhouse_node.cli.running import run

__all__ = ["models_app"]

models_app = typer.Typer(help="The catalogue and the models on this machine.", no_args_is_help=True)


@models_app.command("list")
def models_list(as_json: opt.Json = False) -> None:
    """The catalogue, and which of it is on this machine."""
    from poolhouse_node.cli.pulling import list_models
    from poolhouse_node.cli.view import TerminalView

    raise typer.Exit(list_models(TerminalView(), as_json=as_json))


@models_app.command("pull")
def models_pull(
    model: Annotated[str, typer.Argument(help="Catalogue key, file, folder or URL.")],
    quiet_if_present: Annotated[bool, typer.Option(hidden=True)] = False,
) -> None:
    """Fetch a model, check it, keep it. An interrupted download goes on where it was."""
    from poolhouse_node.cli.pulling import pull_model
    from poolhouse_node.cli.view import TerminalView

    run(pull_model(model, TerminalView(), quiet_if_present=quiet_if_present))


@models_app.command("show")
def models_show(
    model: Annotated[str, typer.Argument(help="Catalogue key, file, folder or URL.")],
    as_json: opt.Json = False,
) -> None:
    """What is known about a model."""
    from poolhouse_node.cli.pulling import show_model
    from poolhouse_node.cli.view import TerminalView

    async def show() -> int:
        return show_model(model, TerminalView(), as_json=as_json)

    run(show())
