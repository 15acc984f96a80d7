"""``poolhouse models``, and finding a model's file with progress on the terminal."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Table

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.weights.cache import default_cache
from poolhouse_node.weights.catalogue import CATALOGUE, find_model
from poolhouse_node.weights.facts import read_facts
from poolhouse_node.weights.opening import open_weights
from poolhouse_node.weights.source import ModelStore
from poolhouse_node.weights.watch import PullWatch

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from poolhouse_node.cli.view import TerminalView
    from poolhouse_node.weights.source import FoundAt, ModelFile

__all__ = [
    "list_models",
    "pull_model",
    "pull_with_progress",
    "require_computable",
    "show_model",
]


def _store(found: Callable[[FoundAt, int], None] | None = None) -> ModelStore:
    store = ModelStore(default_cache(os.environ))
    return store if found is None else replace(store, found=found)


def require_computable(model: str) -> None:
    """Refuse a catalogue model before its gigabytes are fetched. Raises :class:`CommandFailed`."""
    row = CATALOGUE.get(model)
    if row is not None and not row.computable:
        able = ", ".join(key for key, other in CATALOGUE.items() if other.computable)
        raise CommandFailed(
            f"{row.label} is in the catalogue, but this version's engine cannot compute it yet; "
            f"it can: {able}, and files of their architectures."
        )


async def pull_with_progress(
    model: str, view: TerminalView, found: Callable[[FoundAt, int], None] | None = None
) -> tuple[ModelStore, ModelFile]:
    """Find a model's file, fetching it if it is not here. Raises ``WeightsError``.

    ``found`` is told where its parts were, now and whenever the store is asked again.
    """
    store, stopped = _store(found), threading.Event()
    with _bar(view) as progress:
        task = progress.add_task(model, total=None, visible=False)

        def pulled(done_bytes: int, total_bytes: int | None) -> None:
            progress.update(task, completed=done_bytes, total=total_bytes, visible=True)

        watch = PullWatch(pulled, stopped.is_set)
        try:
            return store, await asyncio.to_thread(store.resolve, model, watch)
        finally:
            stopped.set()


def _bar(view: TerminalView) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TransferSpeedColumn(),
        console=view.console,
        transient=True,
        disable=not view.console.is_terminal,
    )


async def pull_model(model: str, view: TerminalView, *, quiet_if_present: bool) -> int:
    """``models pull``."""
    here = model in CATALOGUE and _store().has(CATALOGUE[model])
    if model in CATALOGUE and not here:
        view.say(f"Fetching {model} …")
    _, file = await pull_with_progress(model, view)
    if not (here and quiet_if_present):
        view.say(f"{file.label} is here: {file.path}")
    return 0


def list_models(view: TerminalView, *, as_json: bool) -> int:
    """``models list``: the catalogue, and what of it is here."""
    store = _store()
    rows = [
        {
            "key": model.key,
            "label": model.label,
            "layers": model.layers,
            "size_bytes": model.size_bytes,
            "here": store.has(model),
            "computable": model.computable,
        }
        for model in CATALOGUE.values()
    ]
    if as_json:
        print(json.dumps(rows, ensure_ascii=False))
        return 0
    table = Table(box=None, pad_edge=False)
    for column in ("key", "label", "layers", "size", "here", "computable"):
        table.add_column(column)
    for row in rows:
        size = decimal(int(str(row["size_bytes"]))) if row["size_bytes"] else ""
        table.add_row(
            str(row["key"]),
            str(row["label"]),
            str(row["layers"]),
            size,
            "yes" if row["here"] else "",
            "yes" if row["computable"] else "not yet",
        )
    _stdout(view, table)
    return 0


def show_model(model: str, view: TerminalView, *, as_json: bool) -> int:
    """``models show``: what the catalogue and, when it is here, the file say."""
    store = _store()
    facts: dict[str, object] = {}
    if model in CATALOGUE:
        row = find_model(model)
        facts = {
            "key": row.key,
            "label": row.label,
            "layers": row.layers,
            "width": row.width,
            "vocabulary": row.vocabulary_size,
            "context": f"{row.context.default} (most {row.context.most})",
            "files": [file.url for file in row.files],
            "size_bytes": row.size_bytes,
            "here": store.has(row),
        }
    if not facts or facts["here"]:
        file = store.resolve(model)
        facts |= {"key": file.key, "label": file.label, "path": str(file.path)}
        facts |= _file_facts(file.path)
    if as_json:
        print(json.dumps(facts, ensure_ascii=False))
        return 0
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, value in facts.items():
        shown = "\n".join(map(str, value)) if isinstance(value, list) else str(value)
        table.add_row(name.replace("_", " "), shown)
    _stdout(view, table)
    return 0


def _file_facts(path: Path) -> dict[str, object]:
    with open_weights(path) as gguf:
        facts = read_facts(gguf)
        kinds = sorted({info.type.name for info in gguf.tensors.values()})
    return {
        "architecture": facts.architecture,
        "layers": facts.layers,
        "width": facts.width,
        "vocabulary": facts.vocabulary_size,
        "tensor_types": ", ".join(kinds),
        "size_bytes": path.stat().st_size,
    }


def _stdout(view: TerminalView, table: Table) -> None:
    from rich.console import Console

    Console(highlight=False).print(table)
