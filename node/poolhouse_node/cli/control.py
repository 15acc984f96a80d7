"""``poolhouse control``: the control plane. No torch, no numpy, no WebRTC in here."""

from __future__ import annotations

import asyncio
import json
import os
from typing import TYPE_CHECKING, Any

from poolhouse_control.main import serve
from poolhouse_control.ops.logs import make_logger, standard_logs_through
from poolhouse_control.settings import Settings

if TYPE_CHECKING:
    from poolhouse_control.main import Bound

__all__ = ["run_control"]


async def run_control(*, as_json: bool, **arguments: Any) -> int:
    """Serve until cancelled, then send clients to other replicas before the end.

    With ``as_json`` one line says where, once it answers.
    """
    settings = Settings.load(os.environ, **arguments)
    log = make_logger(level=settings.log_level, style=settings.log_format)

    def started(bound: Bound) -> None:
        if as_json:
            line = {"signal_url": bound.signal_url, "admin_url": bound.admin_url}
            print(json.dumps(line), flush=True)

    with standard_logs_through(log):
        ending = asyncio.Event()
        serving = asyncio.create_task(serve(settings, started=started, ending=ending, log=log))
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            ending.set()
            await serving  # a drain that ends in order is a success to systemd and Kubernetes
    return 0
