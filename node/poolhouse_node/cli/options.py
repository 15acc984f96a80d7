"""Options that several commands share, each said once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

__all__ = [
    "PATH_VARIABLES",
    "ApiClients",
    "Bind",
    "Code",
    "ContextSize",
    "DeviceName",
    "EngineChoice",
    "HostedRoom",
    "IceFile",
    "Json",
    "MaxTokens",
    "MetricsBind",
    "MetricsPort",
    "MetricsRoomLabel",
    "Model",
    "Name",
    "Pledge",
    "PrecisionName",
    "RedealAfter",
    "RelayOnly",
    "Resume",
    "Room",
    "RoomSignal",
    "Rooms",
    "Seed",
    "Signal",
    "Split",
    "Stun",
    "System",
    "TakeOlderDevices",
    "Temperature",
    "Threads",
    "TopK",
    "TrustUnverified",
    "UdpPorts",
    "WaitingDevice",
    "parse_redeal_after",
    "parse_split",
]

EngineName = Literal["libdatachannel", "aiortc"]

DEFAULT_MODEL = "smollm2-135m"
DEFAULT_SIGNAL = "localhost:8080"
DEFAULT_METRICS_BIND = "127.0.0.1"
DEFAULT_REDEAL_AFTER = "60"
REDEAL_AFTER_S_MAX = 86_400.0
NEVER = "never"
DEFAULT_MAX_TOKENS = 400
"""A normal answer (generation, section 12)."""

PATH_VARIABLES = (
    "POOLHOUSE_STUN",
    "POOLHOUSE_ICE",
    "POOLHOUSE_RELAY_ONLY",
    "POOLHOUSE_UDP_PORTS",
    "POOLHOUSE_BIND",
)
"""Of the options about paths between networks, below."""

Signal = Annotated[
    str,
    typer.Option(
        "--signal",
        metavar="URL[,URL]",
        help="Signaling server: host:port or a URL; several are tried in order.",
        envvar="POOLHOUSE_SIGNAL",
    ),
]
Room = Annotated[
    str,
    typer.Argument(help="Room code or invite link.", envvar="POOLHOUSE_ROOM"),
]
Rooms = Annotated[
    list[str],
    typer.Argument(
        metavar="ROOM",
        help="Room codes or invite links.",
        envvar="POOLHOUSE_ROOM",
        show_default=False,
    ),
]
RoomSignal = Annotated[
    str | None,
    typer.Option(
        "--signal",
        metavar="URL[,URL]",
        help="Signaling server. Default: where the invite link points, else localhost:8080.",
        envvar="POOLHOUSE_SIGNAL",
    ),
]
TrustUnverified = Annotated[
    bool,
    typer.Option(help="Go in although the host does not prove that it knows the room's secret."),
]
ApiClients = Annotated[
    bool,
    typer.Option(
        help="Let API clients in as other guests. Without, they are refused whatever they prove.",
        envvar="POOLHOUSE_API_CLIENTS",
    ),
]
TakeOlderDevices = Annotated[
    bool,
    typer.Option(
        help="Let in devices from before the proofs, which show the link's key or their pass as "
        "it is. Whoever runs the signaling server can then learn it, get in, and speak for such a "
        "device. Devices of this program still prove theirs, and take no links from older ones: "
        "those ask, or hold layers next to the host.",
        envvar="POOLHOUSE_TAKE_OLDER_DEVICES",
    ),
]
HostedRoom = Annotated[
    str | None,
    typer.Option("--room", metavar="CODE", help="Which room, when several are hosted here."),
]
WaitingDevice = Annotated[
    str,
    typer.Argument(
        help="Name or six digits of the waiting device. Several that use one name: the digits."
    ),
]
Model = Annotated[
    str,
    typer.Option(
        "--model",
        help="A catalogue key (`poolhouse models list`), a GGUF file or a URL of one, or a folder "
        "with safetensors, config.json and tokenizer.json.",
        envvar="POOLHOUSE_MODEL",
    ),
]
Name = Annotated[
    str | None,
    typer.Option(
        help="This device's name, kept over restarts. Default: the host name.",
        envvar="POOLHOUSE_NAME",
    ),
]
Pledge = Annotated[
    float | None,
    typer.Option(
        metavar="GB",
        min=0.001,
        max=4096,
        help="Memory this device lends. Default: most of its GPU's, half of the machine's, or what "
        "a container's limit leaves after 4 GB.",
        envvar="POOLHOUSE_PLEDGE",
    ),
]
EngineChoice = Annotated[
    EngineName, typer.Option("--rtc", help="WebRTC engine.", envvar="POOLHOUSE_RTC")
]
DeviceName = Annotated[
    str,
    typer.Option(
        "--device",
        help="Where to compute: auto, cpu, cuda, cuda:1, mps. With auto or cuda `up` gives each "
        "device a GPU of its own, in turns.",
        envvar="POOLHOUSE_DEVICE",
    ),
]
PrecisionName = Annotated[
    Literal["exact", "packed", "auto"],
    typer.Option(
        "--precision",
        help="`exact` keeps weights in float32; `packed` keeps them about as small as the file "
        "does and is faster, and answers part only where two tokens are as likely to four "
        "decimals; `auto` is `packed` on CUDA, and on a CPU measures which is faster.",
        envvar="POOLHOUSE_PRECISION",
    ),
]
Threads = Annotated[
    int | None,
    typer.Option(
        min=1, help="CPU threads. Default: this machine's free cores.", envvar="POOLHOUSE_THREADS"
    ),
]
Stun = Annotated[
    list[str] | None,
    typer.Option(
        "--stun",
        metavar="URL",
        help="STUN server instead of the public ones, stun:HOST:PORT; repeatable. "
        "`none` asks no STUN server at all.",
        envvar="POOLHOUSE_STUN",
    ),
]
IceFile = Annotated[
    Path | None,
    typer.Option(
        "--ice",
        metavar="FILE",
        help="JSON list of ICE servers, with their credentials. A relay in it is used instead of "
        "the control plane's.",
        envvar="POOLHOUSE_ICE",
    ),
]
RelayOnly = Annotated[
    bool,
    typer.Option(
        "--relay-only", help="Offer paths through a relay only.", envvar="POOLHOUSE_RELAY_ONLY"
    ),
]
UdpPorts = Annotated[
    str | None,
    typer.Option(
        metavar="A-B",
        help="Local UDP ports to use; each link takes four.",
        envvar="POOLHOUSE_UDP_PORTS",
    ),
]
Bind = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="Use this local address only. Default: those of all interfaces.",
        envvar="POOLHOUSE_BIND",
    ),
]
MetricsPort = Annotated[
    int | None,
    typer.Option(
        "--metrics-port",
        min=0,
        max=65535,
        help="Serve Prometheus metrics and health (/metrics, /livez, /readyz) on this port; 0 "
        "takes a free one.",
        show_default="no metrics",
        envvar="POOLHOUSE_METRICS_PORT",
    ),
]
MetricsBind = Annotated[
    str,
    typer.Option(
        "--metrics-bind",
        metavar="ADDRESS",
        help="Address of that port.",
        envvar="POOLHOUSE_METRICS_BIND",
    ),
]
MetricsRoomLabel = Annotated[
    bool,
    typer.Option(
        "--metrics-room-label",
        help="Name the room in every series, by a short hash of its code. Whoever tries all codes "
        "finds the code.",
        envvar="POOLHOUSE_METRICS_ROOM_LABEL",
    ),
]
Code = Annotated[
    str | None, typer.Option(help="Open this room code instead of a new one, e.g. 4TK-G9P.")
]
Split = Annotated[
    str | None,
    typer.Option(
        metavar="N,N,...",
        help="Layers per device, host first. Default: by memory.",
    ),
]
ContextSize = Annotated[
    int | None,
    typer.Option("--context", min=256, help="Positions of the context. Default: the model's."),
]
Resume = Annotated[
    bool,
    typer.Option(
        "--resume",
        help="Take up the room hosted here in the last 15 minutes, with its conversation; a new "
        "one when there is none. Options given here count, the others are as they were.",
        envvar="POOLHOUSE_RESUME",
    ),
]
RedealAfter = Annotated[
    str,
    typer.Option(
        metavar="SECONDS",
        help="When a device with layers is gone so long, deal them to the others. `0` or `never` "
        "waits for it.",
        envvar="POOLHOUSE_REDEAL_AFTER",
    ),
]
Temperature = Annotated[
    float, typer.Option(min=0.0, max=10.0, help="0 takes the likeliest token every time.")
]
TopK = Annotated[int, typer.Option("--top-k", min=1, max=64, help="Draw among this many tokens.")]
MaxTokens = Annotated[int, typer.Option("--max-tokens", min=1, help="Longest answer in tokens.")]
System = Annotated[str, typer.Option(help="What the model is told before the conversation.")]
Seed = Annotated[int | None, typer.Option(help="Seed of the drawing, for repeatable answers.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


def parse_split(text: str | None) -> tuple[int, ...] | None:
    """``10,10,10`` as numbers. Raises ``typer.BadParameter`` (exit status 2)."""
    if text is None:
        return None
    try:
        split = tuple(int(part) for part in text.split(","))
    except ValueError:
        split = ()
    if not split or any(count < 1 for count in split):
        raise typer.BadParameter(
            f"{text!r} is no split: write the layers of each device, host first, as in 10,10,10."
        )
    return split


def parse_redeal_after(text: str) -> float | None:
    """Seconds; ``None`` for never. Raises ``typer.BadParameter`` (exit status 2)."""
    if text.strip().lower() == NEVER:
        return None
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= REDEAL_AFTER_S_MAX:
        raise typer.BadParameter(f"{text!r} is neither a number of seconds nor `{NEVER}`.")
    return seconds or None
