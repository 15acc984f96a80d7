"""What a person says about paths between networks, read from options and a file."""

from __future__ import annotations

import ipaddress
import re
import socket
from typing import TYPE_CHECKING, Any, Final

import msgspec
import typer

from poolhouse_node.rtc.ice import PathSettings
from poolhouse_node.rtc.peer import RtcError, TurnServer
from poolhouse_node.rtc.relay_answer import is_relay_url, is_stun_url
from poolhouse_node.rtc.turn import parse_relay_url

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from poolhouse_node.rtc.peer import Engine

__all__ = ["read_ice_file", "read_paths", "read_udp_ports"]

_NO_STUN: Final = "none"
_PORTS: Final = re.compile(r"(\d{1,5})-(\d{1,5})")
_LARGEST_FILE_BYTES: Final = 65_536
_FIELDS: Final = frozenset({"urls", "username", "credential"})


def read_paths(
    *,
    stun: Sequence[str] | None,
    ice: Path | None,
    relay_only: bool,
    udp_ports: str | None,
    bind: str | None,
    engine: Engine,
) -> PathSettings:
    """The options as settings. Raises ``typer.BadParameter`` (exit status 2)."""
    named = _read_stun(stun)
    in_file, turn = read_ice_file(ice) if ice is not None else ((), ())
    if named is None and in_file:
        named = in_file
    elif named:
        named = tuple(dict.fromkeys((*named, *in_file)))
    ports = read_udp_ports(udp_ports)
    if ports is not None and engine == "aiortc":
        raise typer.BadParameter("--udp-ports needs --rtc libdatachannel: aiortc takes any port.")
    return PathSettings(named, turn, relay_only, ports, _read_bind(bind))


def _read_stun(urls: Sequence[str] | None) -> tuple[str, ...] | None:
    """None when nothing was said, empty for ``none``."""
    if not urls:
        return None
    if _NO_STUN in urls:
        if len(urls) > 1:
            raise typer.BadParameter("--stun none stands alone: it switches STUN off.")
        return ()
    for url in urls:
        if not is_stun_url(url):
            raise typer.BadParameter(
                f"{url!r} is no STUN server: write stun:HOST or stun:HOST:PORT, or none."
            )
    return tuple(dict.fromkeys(urls))


def read_udp_ports(text: str | None) -> tuple[int, int] | None:
    """``A-B`` as numbers. Raises ``typer.BadParameter``."""
    if text is None:
        return None
    found = _PORTS.fullmatch(text.strip())
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not 1024 <= first <= last <= 65535:
        raise typer.BadParameter(
            f"{text!r} is no range of UDP ports: write two of 1024 to 65535, as in 50000-50100."
        )
    return first, last


def _read_bind(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        address = ipaddress.ip_address(text.strip())
    except ValueError:
        raise typer.BadParameter(f"{text!r} is no IP address to bind to.") from None
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.bind((str(address), 0))
    except OSError:
        raise typer.BadParameter(f"{text} is no address of this machine.") from None
    return str(address)


def read_ice_file(file: Path) -> tuple[tuple[str, ...], tuple[TurnServer, ...]]:
    """STUN addresses and relays of a JSON list of ICE servers, as browsers take it.

    Raises ``typer.BadParameter`` that names what is wrong, never a credential.
    """
    stun: list[str] = []
    turn: list[TurnServer] = []
    for number, entry in enumerate(_entries(file), 1):
        where = f"{file}, entry {number}"
        for url in _urls(entry, where):
            if is_stun_url(url):
                stun.append(url)
            else:
                turn.append(_relay(url, entry, where))
    return tuple(dict.fromkeys(stun)), tuple(dict.fromkeys(turn))


def _entries(file: Path) -> list[Any]:
    try:
        with file.open("rb") as stream:
            data = stream.read(_LARGEST_FILE_BYTES + 1)
    except OSError as error:
        raise typer.BadParameter(f"{file} cannot be read: {error.strerror}.") from None
    try:
        entries = msgspec.json.decode(data) if len(data) <= _LARGEST_FILE_BYTES else None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        entries = None
    if not isinstance(entries, list) or not entries:
        raise typer.BadParameter(
            f'{file} is no JSON list of ICE servers, as in [{{"urls": "turn:relay.example.org", '
            '"username": "...", "credential": "..."}].'
        )
    return entries


def _urls(entry: Any, where: str) -> Iterator[str]:
    if not isinstance(entry, dict) or not entry.keys() <= _FIELDS:
        raise typer.BadParameter(f"{where} is not made of urls, username and credential.")
    said = entry.get("urls")
    texts = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    if not texts:
        raise typer.BadParameter(f"{where} has no urls.")
    for text in texts:
        url = text.strip() if isinstance(text, str) else ""
        if not (is_stun_url(url) or is_relay_url(url)):
            raise typer.BadParameter(f"{where}: {text!r} is no address of a STUN or TURN server.")
        yield url


def _relay(url: str, entry: dict[str, Any], where: str) -> TurnServer:
    username, credential = entry.get("username"), entry.get("credential")
    if not (isinstance(username, str) and username and isinstance(credential, str) and credential):
        raise typer.BadParameter(f"{where}: {url} needs a username and a credential.")
    try:
        parse_relay_url(url)
    except RtcError as error:
        raise typer.BadParameter(f"{where}: {error}") from None
    return TurnServer(url, username, credential)
