"""``poolhouse bench decode --shape``: a catalogue shape with random weights on one device."""

from __future__ import annotations

import asyncio
import json
import statistics
import sys
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from poolhouse_node.cli.bench.shapes import find_shape
from poolhouse_node.cli.failures import CommandFailed

if TYPE_CHECKING:
    import torch

    from poolhouse_node.cli.bench.shape_runs import ShapeRun

__all__ = ["QUANTS", "ShapeBench", "ShapeFigures", "bench_shape", "parse_layers"]

QUANTS = ("q4_0", "q4_1", "q8_0", "bf16")
_COPY_BYTES = 1 << 30
_FRAMES = (4, 8, 16)


@dataclass(frozen=True, slots=True)
class ShapeBench:
    """What is measured."""

    shape: str
    quant: str = "q4_0"
    layers: str | None = None
    """``LO:HI``; all of them, with the head, when ``None``."""
    device: str = "auto"
    prompt: int = 1024
    tokens: int = 64
    repeats: int = 3
    seed: int = 0
    profile: bool = False


@dataclass(frozen=True, slots=True)
class RoomFigures:
    """By the calls that a room makes: embed, run, head, each token read back."""

    tokens_per_s: float
    prefill_tokens_per_s: float
    state_bytes: int


@dataclass(frozen=True, slots=True)
class ShapeFigures:
    """What came of it; medians of the repeats."""

    shape: str
    weights: str
    layers: tuple[int, int]
    with_head: bool
    device: str
    tokens_per_s: float
    token_ms: float
    prefill_tokens_per_s: float
    token_bytes: int
    copy_bytes_per_s: float
    """Bytes read and written by a copy on this device, in this run."""
    roofline_share: float
    """Of the tokens a second that reading the bytes at that speed would allow."""
    weights_bytes: int
    state_bytes: int
    peak_bytes: int | None
    """Of all device memory taken, where the device says so."""
    frame_ms: dict[int, float]
    """Frames of several columns, layers only."""
    in_a_room: RoomFigures | None
    """The same weights as a room uses them; ``None`` where the other figures are of that."""


def parse_layers(text: str) -> tuple[int, int]:
    """``lo:hi``. Raises :class:`CommandFailed`."""
    lo, colon, hi = text.partition(":")
    if not colon or not lo.isdecimal() or not hi.isdecimal() or int(lo) >= int(hi):
        raise CommandFailed(f"--layers wants LO:HI, such as 0:64, not {text!r}.")
    return int(lo), int(hi)


async def bench_shape(bench: ShapeBench, *, as_json: bool) -> int:
    """Measure and print, in a thread: signals are still heard."""
    return await asyncio.to_thread(_bench, bench, as_json=as_json)


def _bench(bench: ShapeBench, *, as_json: bool) -> int:
    from poolhouse_node.engine.devices import pick_device

    device = pick_device(bench.device)
    if bench.profile and device.type != "cuda":
        raise CommandFailed("--profile needs a CUDA device.")
    run, figures = _measure(bench, device)
    if as_json:
        print(json.dumps(asdict(figures)))
    else:
        _print(figures)
    if bench.profile:
        from poolhouse_node.cli.bench.shape_profile import profile_decode

        lines = profile_decode(run, bench.tokens, figures.token_ms / 1e3)
        print("\n".join(lines), file=sys.stderr if as_json else None)
    return 0


def _measure(bench: ShapeBench, device: torch.device) -> tuple[ShapeRun, ShapeFigures]:
    import torch

    shape = find_shape(bench.shape)
    layers = (0, shape.layers) if bench.layers is None else parse_layers(bench.layers)
    if bench.quant not in QUANTS:
        raise CommandFailed(f"--quant is one of {', '.join(QUANTS)}, not {bench.quant!r}.")
    if layers[1] > shape.layers:
        raise CommandFailed(f"{bench.shape} has {shape.layers} layers.")
    copy_speed = _copy_bytes_per_s(device)
    with torch.inference_mode():
        run, weights = _make_run(bench, layers, device)
        run.prefill(bench.prompt)  # compiles, and fills the caches
        prefill_s = statistics.median(run.prefill(bench.prompt) for _ in range(bench.repeats))
        run.decode(2)
        decode_s = statistics.median(run.decode(bench.tokens) for _ in range(bench.repeats))
        token_bytes = run.token_bytes()
        frames = {n: run.frame_s(n) * 1e3 for n in _FRAMES}
        in_a_room = _in_a_room(run, bench)
    token_s = decode_s / bench.tokens
    return run, ShapeFigures(
        shape=bench.shape,
        weights=weights,
        layers=layers,
        with_head=layers == (0, shape.layers),
        device=_device_name(device),
        tokens_per_s=1 / token_s,
        token_ms=token_s * 1e3,
        prefill_tokens_per_s=bench.prompt / prefill_s,
        token_bytes=token_bytes,
        copy_bytes_per_s=copy_speed,
        roofline_share=token_bytes / copy_speed / token_s,
        weights_bytes=run.weights_bytes,
        state_bytes=run.state_bytes,
        peak_bytes=torch.cuda.max_memory_allocated() if device.type == "cuda" else None,
        frame_ms=frames,
        in_a_room=in_a_room,
    )


def _in_a_room(run: ShapeRun, bench: ShapeBench) -> RoomFigures | None:
    from poolhouse_node.cli.bench.shape_runs import KernelRun

    if not isinstance(run, KernelRun):
        return None
    room = run.in_a_room()
    room.prefill(bench.prompt)
    prefill_s = statistics.median(room.prefill(bench.prompt) for _ in range(bench.repeats))
    room.decode(2)
    decode_s = statistics.median(room.decode(bench.tokens) for _ in range(bench.repeats))
    return RoomFigures(bench.tokens / decode_s, bench.prompt / prefill_s, room.state_bytes)


def _make_run(
    bench: ShapeBench, layers: tuple[int, int], device: torch.device
) -> tuple[ShapeRun, str]:
    """The run, and what its weights are."""
    from poolhouse_node.cli.bench.shape_memory import require_memory
    from poolhouse_node.cli.bench.shape_runs import FRAME_ROUNDS, KernelRun, ShardRun
    from poolhouse_node.cli.bench.shape_shards import make_shard

    shape = find_shape(bench.shape)
    context = bench.prompt + bench.tokens * (bench.repeats + 2) + FRAME_ROUNDS * sum(_FRAMES)
    if device.type == "cuda":
        kernels = KernelRun(
            shape, layers, device, quant=bench.quant, seed=bench.seed, context=context
        )
        return kernels, bench.quant
    with_head = layers == (0, shape.layers)
    require_memory(shape, layers, device, context=context, with_head=with_head)
    shard = make_shard(
        shape,
        layers,
        device,
        quant=bench.quant,
        seed=bench.seed,
        context=context,
        with_head=with_head,
    )
    return ShardRun(shape, shard, context), "f32"


def _copy_bytes_per_s(device: torch.device) -> float:
    import torch

    count = (_COPY_BYTES if device.type == "cuda" else _COPY_BYTES // 16) // 4
    source = torch.ones(count, device=device)
    to = torch.empty_like(source)

    def copy(times: int) -> float:
        _wait(device)
        started = time.perf_counter()
        for _ in range(times):
            torch.add(source, 0, out=to)
        _wait(device)
        return times * 2 * source.nbytes / (time.perf_counter() - started)

    copy(2)
    return max(copy(10) for _ in range(3))


def _wait(device: torch.device) -> None:
    import torch

    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _device_name(device: torch.device) -> str:
    import torch

    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _print(figures: ShapeFigures) -> None:
    head = "with head" if figures.with_head else "layers only"
    lo, hi = figures.layers
    print(f"{figures.shape} {figures.weights}, layers {lo} to {hi}, {head}, {figures.device}")
    print(f"  decode       {figures.tokens_per_s:8.1f} tokens/s  {figures.token_ms:.3f} ms a token")
    print(f"  prefill      {figures.prefill_tokens_per_s:8.0f} tokens/s")
    if figures.in_a_room is not None:
        room = figures.in_a_room
        share = room.tokens_per_s / figures.tokens_per_s
        print(
            f"  in a room    {room.tokens_per_s:8.1f} tokens/s ({share:.0%}), prefill "
            f"{room.prefill_tokens_per_s:.0f} tokens/s"
        )
    for columns, frame_ms in figures.frame_ms.items():
        print(f"  {columns:2} columns   {frame_ms:8.3f} ms a frame")
    print(
        f"  a token moves {figures.token_bytes / 1e9:.2f} GB; a copy runs at "
        f"{figures.copy_bytes_per_s / 1e12:.3f} TB/s: {figures.roofline_share:.0%} of the roofline"
    )
    peak = "" if figures.peak_bytes is None else f", peak {figures.peak_bytes / 1e9:.2f} GB"
    print(
        f"  memory: weights {figures.weights_bytes / 1e9:.2f} GB, "
        f"state {figures.state_bytes / 1e9:.2f} GB{peak}"
    )
