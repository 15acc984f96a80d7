"""The subcommands of ``poolhouse bench``. Every heavy import is made by its command."""

from __future__ import annotations

from typing import Annotated

import typer

from poolhouse_node.cli import options as opt
from poolhouse_node.cli.running import run

__all__ = ["bench_app"]

bench_app = typer.Typer(
    help="The figures this project promises, each against its floor.", no_args_is_help=True
)


@bench_app.command("wire")
def bench_wire(
    laps: Annotated[int, typer.Option(min=100, max=1_000_000, help="Laps of each kind.")] = 2000,
    frame_bytes: Annotated[
        int, typer.Option("--bytes", min=2, max=1 << 20, help="Size of the frame.")
    ] = 10_240,
    as_json: opt.Json = False,
) -> None:
    """A 10 KB frame and back over both engines, beside a bare echo of its slices and TCP."""
    from poolhouse_node.cli.bench.wire import WireBench
    from poolhouse_node.cli.bench.wire import bench_wire as measure

    run(measure(WireBench(laps, frame_bytes), as_json=as_json))


@bench_app.command("decode")
def bench_decode(
    *,
    model: opt.Model = opt.DEFAULT_MODEL,
    tokens: Annotated[int, typer.Option(min=2, max=100_000, help="Tokens to generate.")] = 64,
    repeats: Annotated[int, typer.Option(min=1, max=100, help="Runs; the median counts.")] = 3,
    rtc: opt.EngineChoice = "libdatachannel",
    device: opt.DeviceName = "auto",
    threads: opt.Threads = None,
    precision: opt.PrecisionName = "auto",
    against: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Instead: one process in both precisions beside hf, llama.cpp or both "
            "(hf,llama.cpp), after a short prompt and one of 1,000 tokens.",
        ),
    ] = None,
    shape: Annotated[
        str | None,
        typer.Option(
            metavar="KEY", help="Instead: random weights of this catalogue shape on one device."
        ),
    ] = None,
    quant: Annotated[
        str, typer.Option(metavar="TYPE", help="Of a shape on CUDA: q4_0, q4_1, q8_0 or bf16.")
    ] = "q4_0",
    layers: Annotated[
        str | None, typer.Option(metavar="LO:HI", help="Of a shape; all, with head, when left out.")
    ] = None,
    prompt: Annotated[
        int, typer.Option(min=1, max=100_000, help="Prefilled columns of a shape.")
    ] = 1024,
    room: Annotated[
        str | None,
        typer.Option(
            metavar="HOST,WORKER",
            help="Of a shape: also as a room of two processes on these devices, over loopback "
            "links (cuda:0,cuda:1), with where a token's time goes.",
        ),
    ] = None,
    profile: Annotated[
        bool, typer.Option("--profile", help="Show a token's time by kernel family (CUDA).")
    ] = False,
    as_json: opt.Json = False,
) -> None:
    """Tokens per second of rooms of 1, 2 and 3 devices beside one process without links.

    With --shape: of one device with random weights of that shape, beside its memory's speed.
    """
    if shape is not None and room is not None:
        from poolhouse_node.cli.bench.shape_room import RoomBench, bench_room, parse_devices

        of_room = RoomBench(
            shape, parse_devices(room), quant, rtc, min(prompt, 256), tokens, repeats
        )
        run(bench_room(of_room, as_json=as_json))
    if shape is not None:
        from poolhouse_node.cli.bench.shape import ShapeBench, bench_shape

        of_shape = ShapeBench(
            shape, quant, layers, device, prompt, tokens, repeats, profile=profile
        )
        run(bench_shape(of_shape, as_json=as_json))
    if against is not None:
        from poolhouse_node.cli.bench.against import AgainstBench, bench_against

        of_peers = AgainstBench(model, tuple(against.split(",")), tokens, repeats, threads)
        run(bench_against(of_peers, as_json=as_json))
    from poolhouse_node.cli.bench.decode import DecodeBench
    from poolhouse_node.cli.bench.decode import bench_decode as measure

    bench = DecodeBench(
        model, rtc, device, tokens=tokens, repeats=repeats, threads=threads, precision=precision
    )
    run(measure(bench, as_json=as_json))


@bench_app.command("signaling")
def bench_signaling(
    *,
    sockets: Annotated[int, typer.Option(min=2, max=5000, help="Open at a time.")] = 2000,
    messages: Annotated[
        int, typer.Option(min=100, max=1_000_000, help="Relayed as fast as it goes.")
    ] = 60_000,
    rate_per_s: Annotated[
        int, typer.Option("--rate", min=10, max=20_000, help="Messages a second for latency.")
    ] = 1000,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=120, help="Time at that rate.", metavar="S")
    ] = 15.0,
    message_bytes: Annotated[
        int, typer.Option("--bytes", min=256, max=60_000, help="Size of a message.")
    ] = 1200,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="Turns of each server.")] = 3,
    against: Annotated[
        str | None,
        typer.Option(
            metavar="npm|URL", help="Measure a second server in turn: PeerServer of npm, or a URL."
        ),
    ] = None,
    against_pid: Annotated[
        int | None,
        typer.Option(min=2, metavar="PID", help="Its process. Default: who listens on the port."),
    ] = None,
    replicas: Annotated[
        int,
        typer.Option(min=1, max=8, help="Above 1: measure so many over a Redis, beside one alone."),
    ] = 1,
    as_json: opt.Json = False,
) -> None:
    """What a socket and a relayed message cost the control plane. Loopback only."""
    from poolhouse_node.cli.bench.signaling import SignalingBench
    from poolhouse_node.cli.bench.signaling import bench_signaling as measure

    bench = SignalingBench(
        sockets,
        messages,
        rate_per_s,
        seconds,
        message_bytes,
        rounds,
        against,
        against_pid,
        replicas,
    )
    run(measure(bench, as_json=as_json))
