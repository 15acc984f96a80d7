"""The commands that open rooms, join them and ask them: ``up``, ``host``, ``join`` and ``ask``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from poolhouse_node.cli import options as opt
from poolhouse_node.cli.running import run

if TYPE_CHECKING:
    from poolhouse_node.cli.host import HostOptions
    from poolhouse_node.cli.join import JoinOptions
    from poolhouse_node.cli.measuring import MetricsOptions
    from poolhouse_node.rtc.ice import PathSettings

__all__ = ["ask", "host", "join", "up"]


def up(
    context: typer.Context,
    devices: Annotated[int, typer.Option(min=1, max=64, help="Devices in all, host included.")] = 3,
    ask: Annotated[str | None, typer.Option(metavar="TEXT", help="Ask once, then end.")] = None,
    raw: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ask once; the file is the whole prompt, then end."),
    ] = None,
    model: opt.Model = opt.DEFAULT_MODEL,
    split: opt.Split = None,
    temperature: opt.Temperature = 0.0,
    top_k: opt.TopK = 40,
    max_tokens: opt.MaxTokens = opt.DEFAULT_MAX_TOKENS,
    system: opt.System = "",
    seed: opt.Seed = None,
    pledge: opt.Pledge = None,
    context_size: opt.ContextSize = None,
    rtc: opt.EngineChoice = "libdatachannel",
    device: opt.DeviceName = "auto",
    threads: opt.Threads = None,
    precision: opt.PrecisionName = "auto",
    code: opt.Code = None,
    api_clients: opt.ApiClients = True,
    resume: opt.Resume = False,
    redeal_after: opt.RedealAfter = opt.DEFAULT_REDEAL_AFTER,
    metrics_port: opt.MetricsPort = None,
    metrics_bind: opt.MetricsBind = opt.DEFAULT_METRICS_BIND,
    metrics_room_label: opt.MetricsRoomLabel = False,
    as_json: opt.Json = False,
) -> None:
    """Everything on this machine: control plane, host and workers, each a process of its own.

    The room is open to anyone on this machine who knows its code; it listens on loopback only.
    --metrics-port is the host's; workers take the ports after it.
    """
    from poolhouse_node.cli.up import UpOptions, bring_up

    if ask is not None and raw is not None:
        raise typer.BadParameter("give --ask or --raw, not both")
    _check_question(ask)
    if as_json and ask is None and raw is None:
        raise typer.BadParameter("--json needs a question: --ask TEXT or --raw FILE")
    host = _host_options(
        signal="",
        rtc=rtc,
        model=model,
        split=split,
        temperature=temperature,
        top_k=top_k,
        max_tokens=max_tokens,
        system=system,
        seed=seed,
        pledge_gb=pledge,
        name=None,
        context_size=context_size,
        device=device,
        threads=threads,
        precision=precision,
        code=code,
        wait=devices - 1,
        is_open=True,
        takes_api_clients=api_clients,
        redeal_after=redeal_after,
        resume=resume,
        metrics=_metrics(metrics_port, metrics_bind, names_room=metrics_room_label),
        said=_said(context),
    )
    if host.split is not None and len(host.split) > devices:
        raise typer.BadParameter(
            f"--split names {len(host.split)} devices, but there are {devices} in all"
        )
    run(bring_up(UpOptions(host, devices, ask, raw, as_json)))


def host(
    context: typer.Context,
    signal: opt.Signal = opt.DEFAULT_SIGNAL,
    model: opt.Model = opt.DEFAULT_MODEL,
    open_room: Annotated[
        bool, typer.Option("--open", help="Let in anyone who knows the code, without asking.")
    ] = False,
    deny_unknown: Annotated[
        bool, typer.Option(help="Refuse whoever has no invite link or pass, without asking.")
    ] = False,
    take_older_devices: opt.TakeOlderDevices = False,
    api_clients: opt.ApiClients = True,
    wait: Annotated[
        int, typer.Option(min=0, max=64, help="Deal the layers when this many devices joined.")
    ] = 1,
    code: opt.Code = None,
    resume: opt.Resume = False,
    redeal_after: opt.RedealAfter = opt.DEFAULT_REDEAL_AFTER,
    name: opt.Name = None,
    pledge: opt.Pledge = None,
    split: opt.Split = None,
    temperature: opt.Temperature = 0.0,
    top_k: opt.TopK = 40,
    max_tokens: opt.MaxTokens = opt.DEFAULT_MAX_TOKENS,
    system: opt.System = "",
    seed: opt.Seed = None,
    context_size: opt.ContextSize = None,
    rtc: opt.EngineChoice = "libdatachannel",
    stun: opt.Stun = None,
    ice: opt.IceFile = None,
    relay_only: opt.RelayOnly = False,
    udp_ports: opt.UdpPorts = None,
    bind: opt.Bind = None,
    device: opt.DeviceName = "auto",
    threads: opt.Threads = None,
    precision: opt.PrecisionName = "auto",
    metrics_port: opt.MetricsPort = None,
    metrics_bind: opt.MetricsBind = opt.DEFAULT_METRICS_BIND,
    metrics_room_label: opt.MetricsRoomLabel = False,
) -> None:
    """Open a room: other devices join it, together you hold the model."""
    from poolhouse_node.cli.host import host_room

    run(
        host_room(
            _host_options(
                signal=signal,
                rtc=rtc,
                paths=_paths(rtc, stun, ice, udp_ports, bind, relay_only=relay_only),
                model=model,
                split=split,
                temperature=temperature,
                top_k=top_k,
                max_tokens=max_tokens,
                system=system,
                seed=seed,
                pledge_gb=pledge,
                name=name,
                context_size=context_size,
                device=device,
                threads=threads,
                precision=precision,
                code=code,
                wait=wait,
                is_open=open_room,
                denies_unknown=deny_unknown,
                takes_older_devices=take_older_devices,
                takes_api_clients=api_clients,
                redeal_after=redeal_after,
                resume=resume,
                metrics=_metrics(metrics_port, metrics_bind, names_room=metrics_room_label),
                said=_said(context),
            )
        )
    )


def join(
    rooms: opt.Rooms,
    signal: opt.RoomSignal = None,
    name: opt.Name = None,
    trust_unverified: opt.TrustUnverified = False,
    pledge: opt.Pledge = None,
    rtc: opt.EngineChoice = "libdatachannel",
    stun: opt.Stun = None,
    ice: opt.IceFile = None,
    relay_only: opt.RelayOnly = False,
    udp_ports: opt.UdpPorts = None,
    bind: opt.Bind = None,
    device: opt.DeviceName = "auto",
    threads: opt.Threads = None,
    precision: opt.PrecisionName = "auto",
    metrics_port: opt.MetricsPort = None,
    metrics_bind: opt.MetricsBind = opt.DEFAULT_METRICS_BIND,
    metrics_room_label: opt.MetricsRoomLabel = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print what happens as lines of JSON, with their room.")
    ] = False,
) -> None:
    """Hold layers in a room until it is over, or in several with the same memory."""
    from poolhouse_node.cli.holding import hold_layers

    options = _join_options(
        rooms[0],
        signal,
        rtc,
        name,
        paths=_paths(rtc, stun, ice, udp_ports, bind, relay_only=relay_only),
        trust=trust_unverified,
        pledge_gb=pledge,
        device=device,
        threads=threads,
        precision=precision,
        metrics=_metrics(metrics_port, metrics_bind, names_room=metrics_room_label),
    )
    run(hold_layers(options, rooms, as_json=as_json))


def ask(
    room: opt.Room,
    text: Annotated[str | None, typer.Argument(help="The question; without it, a chat.")] = None,
    signal: opt.RoomSignal = None,
    name: opt.Name = None,
    trust_unverified: opt.TrustUnverified = False,
    rtc: opt.EngineChoice = "libdatachannel",
    stun: opt.Stun = None,
    ice: opt.IceFile = None,
    relay_only: opt.RelayOnly = False,
    udp_ports: opt.UdpPorts = None,
    bind: opt.Bind = None,
    as_json: opt.Json = False,
) -> None:
    """Ask a room, once or in a chat, without holding layers."""
    from poolhouse_node.cli.join import ask_room

    if as_json and text is None:
        raise typer.BadParameter("--json needs a question")
    _check_question(text)
    paths = _paths(rtc, stun, ice, udp_ports, bind, relay_only=relay_only)
    options = _join_options(room, signal, rtc, name, paths=paths, trust=trust_unverified)
    run(ask_room(options, text, as_json=as_json))


# ---- what the person said ------------------------------------------------------------------------


def _check_question(text: str | None) -> None:
    if text is not None and not text.strip():
        raise typer.BadParameter("the question is empty")


def _said(context: typer.Context) -> frozenset[str]:
    """Options that the person gave, on the command line, by a variable or in a file."""
    sources = ((name, context.get_parameter_source(name)) for name in context.params)
    return frozenset(name for name, source in sources if source and source.name != "DEFAULT")


def _paths(
    engine: opt.EngineName,
    stun: list[str] | None,
    ice: Path | None,
    udp_ports: str | None,
    bind: str | None,
    *,
    relay_only: bool,
) -> PathSettings:
    from poolhouse_node.cli.paths import read_paths

    return read_paths(
        stun=stun, ice=ice, relay_only=relay_only, udp_ports=udp_ports, bind=bind, engine=engine
    )


def _metrics(port: int | None, bind: str, *, names_room: bool) -> MetricsOptions:
    from poolhouse_node.cli.measuring import MetricsOptions

    return MetricsOptions(port, bind, names_room)


def _host_options(
    *,
    signal: str,
    rtc: opt.EngineName,
    paths: PathSettings | None = None,
    split: str | None,
    temperature: float,
    top_k: int,
    redeal_after: str,
    **rest: Any,
) -> HostOptions:
    from poolhouse_node.cli.host import HostOptions
    from poolhouse_node.cli.rooms import Place
    from poolhouse_node.generate.sampler import Sampling

    return HostOptions(
        place=Place.read(signal, rtc, paths, os.environ),
        sampling=Sampling(temperature, top_k),
        split=opt.parse_split(split),
        redeal_after_s=opt.parse_redeal_after(redeal_after),
        **rest,
    )


def _join_options(
    room: str,
    signal: str | None,
    rtc: opt.EngineName,
    name: str | None,
    *,
    paths: PathSettings,
    trust: bool,
    pledge_gb: float | None = None,
    device: str = "auto",
    threads: int | None = None,
    precision: str = "auto",
    metrics: MetricsOptions | None = None,
) -> JoinOptions:
    from poolhouse_node.cli.join import JoinOptions
    from poolhouse_node.cli.measuring import MetricsOptions

    return JoinOptions(
        room,
        signal,
        rtc,
        os.environ,
        name,
        pledge_gb,
        device,
        threads,
        precision,
        paths=paths,
        trust_unverified=trust,
        metrics=metrics or MetricsOptions(),
    )
