"""``poolhouse turn check``: does the relay relay, and does it stay out of its own network?"""

from __future__ import annotations

import json
import os
import ssl
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import httpx

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.rtc.ice import is_relay_url
from poolhouse_node.rtc.turn_check import RelayFinding, check_relay, check_transports

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["check"]

_ASK_TIMEOUT_S: Final = 10.0
_MARKS: Final = {
    "ok": "[green]ok    [/]",
    "note": "[yellow]note  [/]",
    "failed": "[red]failed[/]",
}
_REASONS: Final = {
    204: "no relay is configured",
    401: "an API token is needed: set POOLHOUSE_API_TOKEN",
    403: "it does not take this origin, or needs a proof: set POOLHOUSE_API_TOKEN",
    429: "too many requests from here in this minute",
    502: "the relay provider has no credentials to give",
}


async def check(control: str, authority: Path | None, *, as_json: bool) -> int:
    """Check every relay that ``/api/turn`` hands out; exit status 1 when anything failed."""
    tls = _trust(authority)
    servers = await _ice_servers(control, tls)
    relays = [(url, user, password) for url, user, password in servers if is_relay_url(url)]
    findings = check_transports([url for url, _, _ in relays])
    for url, username, credential in relays:
        findings += await check_relay(url, username, credential, tls=tls)
    if as_json:
        print(json.dumps([asdict(finding) for finding in findings], ensure_ascii=False))
    else:
        _show(findings)
    return 1 if any(finding.verdict == "failed" for finding in findings) else 0


def _trust(authority: Path | None) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authority is not None:
        try:
            context.load_verify_locations(cafile=str(authority))
        except OSError as error:
            reason = error.strerror or "it holds no certificate"
            raise CommandFailed(f"{authority} cannot be used: {reason}.") from None
    return context


async def _ice_servers(control: str, tls: ssl.SSLContext) -> list[tuple[str, str, str]]:
    base = _base_url(control)
    # The control plane's own origin: a program has none (decision 16).
    parts = urlsplit(base)
    headers = {"Origin": f"{parts.scheme}://{parts.netloc}"}
    token = os.environ.get("POOLHOUSE_API_TOKEN", "").strip()
    if token:
        headers["Authorization"] = f"Bearer {token}"
    try:
        async with httpx.AsyncClient(verify=tls, timeout=_ASK_TIMEOUT_S) as client:
            answer = await client.post(
                f"{base}/api/turn", headers=headers, json={"device": "poolhouse turn check"}
            )
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        raise CommandFailed(f"The control plane at {base} cannot be asked: {error}.") from None
    if answer.status_code != 200:
        reason = _REASONS.get(answer.status_code, "that is no answer to such a request")
        raise CommandFailed(f"{base}/api/turn answers {answer.status_code}: {reason}.")
    return _entries(answer)


def _base_url(control: str) -> str:
    base = control.strip().rstrip("/")
    return base if "://" in base else f"http://{base}"


def _entries(answer: httpx.Response) -> list[tuple[str, str, str]]:
    """URL, user name and credential of every address. What is malformed is left out."""
    try:
        body: Any = answer.json()
        servers = body["iceServers"]
        found = [
            (str(url), str(server.get("username", "")), str(server.get("credential", "")))
            for server in servers
            for url in server["urls"]
        ]
    except (ValueError, TypeError, KeyError, AttributeError):
        raise CommandFailed("The control plane's answer is no list of ICE servers.") from None
    if not any(is_relay_url(url) for url, _, _ in found):
        raise CommandFailed("The control plane hands out no relay.")
    return found


def _show(findings: list[RelayFinding]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    shown = ""
    for finding in findings:
        if finding.url != shown:
            table.add_row("", Text(finding.url, style="bold"), "")
            shown = finding.url
        table.add_row(_MARKS[finding.verdict], Text(finding.what), Text(finding.words))
    Console(highlight=False).print(table)
