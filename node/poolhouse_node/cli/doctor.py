"""``poolhouse doctor``: what this machine can do, what is missing, in plain words."""

from __future__ import annotations

import asyncio
import importlib.metadata
import json
import os
import platform
import shutil
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Literal

from poolhouse_node.cli.machine import container_gb, default_pledge_gb, memory_gb, usable_cores
from poolhouse_node.compilers import cpu_fault, cuda_fault

if TYPE_CHECKING:
    from collections.abc import Sequence

    from poolhouse_node.rtc.peer import Engine

__all__ = ["Finding", "examine"]

type Verdict = Literal["ok", "note", "missing"]
MARKS = {"ok": "[green]ok     [/]", "note": "[yellow]note   [/]", "missing": "[red]missing[/]"}
ASSOCIATION_S = 20.0


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing looked at. Only ``missing`` keeps a device from working."""

    what: str
    verdict: Verdict
    words: str


async def examine(servers: Sequence[str], *, as_json: bool) -> int:
    """Look at everything; exit status 1 when something needed is missing."""
    findings = [_python(), _machine(), _cache(), _torch(), _packed_weights(), _model()]
    findings += [await _webrtc("libdatachannel"), await _webrtc("aiortc")]
    findings.append(await _signaling(servers))
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
    else:
        _show(findings)
    return 1 if any(finding.verdict == "missing" for finding in findings) else 0


def _show(findings: list[Finding]) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for finding in findings:
        table.add_row(MARKS[finding.verdict], finding.what, finding.words)
    Console(highlight=False).print(table)


def _python() -> Finding:
    return Finding(
        "Python", "ok", f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    )


def _machine() -> Finding:
    limit = container_gb()
    allowed = f", {limit:.1f} GB of them in this container" if limit is not None else ""
    words = (
        f"{usable_cores()} cores, {memory_gb():.1f} GB of memory{allowed}; "
        f"would lend {default_pledge_gb(device='auto')} GB unless told otherwise"
    )
    return Finding("machine", "ok", words)


def _cache() -> Finding:
    from poolhouse_node.weights.cache import default_cache

    root = default_cache(os.environ).root
    there = next(path for path in (root, *root.parents) if path.exists())
    free_gb = shutil.disk_usage(there).free / 2**30
    if not os.access(there, os.W_OK):
        return Finding("model cache", "missing", f"{root} cannot be written; set POOLHOUSE_CACHE")
    return Finding("model cache", "ok", f"{root}, {free_gb:.0f} GB free")


def _model() -> Finding:
    from poolhouse_node.weights.cache import default_cache
    from poolhouse_node.weights.catalogue import CATALOGUE
    from poolhouse_node.weights.source import ModelStore

    store = ModelStore(default_cache(os.environ))
    here = [model.key for model in CATALOGUE.values() if store.has(model)]
    if not here:
        return Finding("models", "note", "none here yet: poolhouse models pull smollm2-135m")
    return Finding("models", "ok", ", ".join(here))


def _torch() -> Finding:
    try:
        import torch
    except ImportError:
        return Finding("torch", "missing", "not installed: pip install 'poolhouse[node]'")
    if torch.cuda.is_available():
        names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
        return Finding("torch", "ok", f"{torch.__version__} with {', '.join(names)}")
    if torch.backends.mps.is_available():
        return Finding("torch", "ok", f"{torch.__version__} with Apple's GPU")
    return Finding("torch", "note", f"{torch.__version__}; no GPU, the CPU computes")


def _packed_weights() -> Finding:
    """Of the device that ``auto`` means."""
    what = "packed weights"
    kind = _auto_kind()
    if kind not in {"cpu", "cuda"}:
        return Finding(what, "note", f"there are no products for {kind}: it computes in float32")
    fault = cuda_fault() if kind == "cuda" else cpu_fault()
    if fault is not None:
        words = f"{fault}; until then weights are float32, several times as large as their file"
        return Finding(what, "note", words)
    by = "kernels by Triton" if kind == "cuda" else "products by numba, where they are faster"
    return Finding(what, "ok", f"compiled here: {by}")


def _auto_kind() -> str:
    try:
        from poolhouse_node.engine import pick_device
    except ImportError:  # torch is missing, which stands above
        return "cpu"
    return pick_device("auto").type


async def _webrtc(engine: Engine) -> Finding:
    what = f"WebRTC by {engine}"
    try:
        async with asyncio.timeout(ASSOCIATION_S):
            return Finding(what, "ok", await _association(engine))
    except Exception as error:  # noqa: BLE001 - whatever is wrong here is what we came to tell
        return Finding(what, "missing", f"{type(error).__name__}: {error}")


async def _association(engine: Engine) -> str:
    """Two associations of this process, joined over loopback, one message sent."""
    from poolhouse_node.rtc.ice import build_ice_settings
    from poolhouse_node.rtc.open import parse_servers
    from poolhouse_node.rtc.peer import make_peer

    ice = build_ice_settings(parse_servers(["127.0.0.1:1"]))
    one, two = make_peer(engine, ice), make_peer(engine, ice)
    try:
        sender = one.channel("doctor", stream_id=1)
        receiver = two.channel("doctor", stream_id=1)
        received: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        receiver.on_message = received.set_result
        sender.on_open = lambda: sender.send(b"well")
        await one.accept(await two.answer(await one.offer()))
        await received
    finally:
        await one.close()
        await two.close()
    package = "aiolibdatachannel" if engine == "libdatachannel" else engine
    return f"{importlib.metadata.version(package)}, a message crossed loopback"


async def _signaling(servers: Sequence[str]) -> Finding:
    from poolhouse_node.rtc.open import parse_servers
    from poolhouse_node.rtc.peer import RtcError
    from poolhouse_node.rtc.signaling import SignalingClient

    what = "signaling"
    try:
        client = SignalingClient(parse_servers(servers))
        await client.open()
    except RtcError as error:
        return Finding(what, "note", str(error))
    await client.close()
    return Finding(what, "ok", f"{client.server.label} answers")
