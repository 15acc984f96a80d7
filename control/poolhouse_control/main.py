"""The control plane as a process, or inside one: two uvicorn servers, signals, an end.

uvicorn closes every socket the moment it hears a signal. What must happen before that belongs
in front of it, so the servers are started here and hear of signals from here only.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import uvicorn

from poolhouse_control.app import Parts, create_app, make_parts
from poolhouse_control.errors import ControlError
from poolhouse_control.listen import bind, url_of
from poolhouse_control.ops.admin import create_admin_app
from poolhouse_control.ops.logs import make_logger, standard_logs_through
from poolhouse_control.ops.tls import Certificate
from poolhouse_control.settings import Settings
from poolhouse_control.signaling.transport import SignalingProtocol

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterator

    from litestar import Litestar
    from structlog.typing import FilteringBoundLogger

    from poolhouse_control.ops.drain import Drain

__all__ = ["Bound", "main", "serve"]

_TICKS_PER_S: Final = 10
"""uvicorn's own count; its tick refreshes the date on every tenth."""

_LOOK_AT_CERTIFICATE_EVERY_S: Final = 10.0

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True, slots=True)
class Bound:
    """Where a running control plane listens."""

    host: str
    port: int
    admin_host: str
    admin_port: int
    path: str
    is_tls: bool = False

    @property
    def signal_url(self) -> str:
        """Address of signaling, as this machine reaches it."""
        scheme = "https" if self.is_tls else "http"
        return url_of(self.host, self.port, scheme=scheme) + self.path

    @property
    def admin_url(self) -> str:
        """Address of the admin port, with a trailing slash."""
        return url_of(self.admin_host, self.admin_port) + "/"


class _Server(uvicorn.Server):
    """A server that leaves signals alone and says when it has started."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.ready = asyncio.Event()
        self._wake = asyncio.Event()

    def stop(self) -> None:
        """Close every socket with 1012 and end."""
        self.should_exit = True
        self._wake.set()

    async def main_loop(self) -> None:
        """Tick once a second (for the date header), not ten times, and end when told."""
        ticks = 0
        while not await self.on_tick(ticks):
            ticks += _TICKS_PER_S
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await self._wake.wait()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, then say so."""
        await super().startup(sockets=sockets)
        self.ready.set()

    async def run_on(self, sock: socket.socket) -> None:
        """Serve until ``should_exit``; afterwards nothing of it is left."""
        try:
            await self.serve(sockets=[sock])
        except SystemExit:  # uvicorn's word for a lifespan that failed
            raise ControlError("The server could not start; its log says why.") from None
        finally:
            # A client that does not read outlives the graceful end: cut it.
            for connection in list(self.server_state.connections):
                connection.transport.abort()


async def serve(
    settings: Settings,
    *,
    started: Callable[[Bound], None] | None = None,
    handle_signals: bool = False,
    ending: asyncio.Event | None = None,
    log: FilteringBoundLogger | None = None,
) -> None:
    """Run a control plane until ``ending`` is set, SIGINT or SIGTERM comes, or it is cancelled.

    ``started`` is called once both ports answer. The first two begin a drain, which sends clients
    to other replicas; cancelling closes every socket with 1012 and returns within
    ``shutdown_timeout_s`` or so. Signal handlers are installed only with ``handle_signals``; then a
    second signal ends the process at once.

    Raises:
        ListenError: a port cannot be had; nothing was started.
    """
    with contextlib.ExitStack() as stack:
        public = stack.enter_context(
            bind(settings.host, settings.port, setting="--port or POOLHOUSE_PORT")
        )
        admin = stack.enter_context(
            bind(
                settings.admin_host,
                settings.admin_port,
                setting="--admin-port or POOLHOUSE_ADMIN_PORT",
            )
        )
        bound = Bound(
            settings.host,
            public.getsockname()[1],
            settings.admin_host,
            admin.getsockname()[1],
            settings.path,
            is_tls=bool(settings.tls_cert),
        )
        parts = make_parts(settings, log, ending=ending)
        if handle_signals:
            stack.enter_context(_signals_to(parts.drain))
        await _run(parts, public, admin, lambda: _announce(parts, bound, started))


async def _run(
    parts: Parts,
    public_socket: socket.socket,
    admin_socket: socket.socket,
    announce: Callable[[], None],
) -> None:
    settings = parts.settings
    certificate = Certificate(settings.tls_cert, settings.tls_key) if settings.tls_cert else None
    admin_app = create_admin_app(parts.registry, parts.health, parts.drain)
    public = _Server(_config(create_app(settings, parts), settings, certificate))
    admin = _Server(_config(admin_app, settings))
    async with contextlib.AsyncExitStack() as stack:
        if certificate is not None:
            watching = certificate.watching(parts.log, every_s=_LOOK_AT_CERTIFICATE_EVERY_S)
            await stack.enter_async_context(watching)
        tasks = await stack.enter_async_context(asyncio.TaskGroup())
        # Admin first up and last down: it tells how the other is.
        admin_task = tasks.create_task(admin.run_on(admin_socket))
        await admin.ready.wait()
        public_task = tasks.create_task(public.run_on(public_socket))
        try:
            await public.ready.wait()
            announce()
            await _serve_until_drained(parts)
        finally:
            parts.health.ready = False
            for server, task in ((public, public_task), (admin, admin_task)):
                server.stop()
                await asyncio.wait({task})
    parts.log.info("control.stopped")


async def _serve_until_drained(parts: Parts) -> None:
    """Become ready when the store has answered once; drain when asked."""
    readiness = asyncio.create_task(_get_ready(parts))
    try:
        await parts.drain.requested.wait()
    finally:
        readiness.cancel()
    await parts.drain.run()


async def _get_ready(parts: Parts) -> None:
    """From then on readiness does not look at the store, or all replicas would go at once."""
    await parts.switchboard.presence.opened()
    parts.health.ready = True


def _announce(parts: Parts, bound: Bound, started: Callable[[Bound], None] | None) -> None:
    parts.log.info(
        "control.started",
        signal_url=bound.signal_url,
        admin_url=bound.admin_url,
        relay="coturn" if parts.settings.turn_secret else "none",
    )
    if started is not None:
        started(bound)


def _config(
    app: Litestar, settings: Settings, certificate: Certificate | None = None
) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        ssl_context_factory=(lambda *_: certificate.context) if certificate else None,
        ws=SignalingProtocol,
        ws_max_size=settings.max_message_bytes,
        ws_ping_interval=settings.ping_interval_s,
        ws_ping_timeout=settings.ping_timeout_s,
        ws_per_message_deflate=False,
        lifespan="on",
        log_config=None,
        # Below warnings uvicorn logs the query of each socket, and with it the token.
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_graceful_shutdown=math.ceil(settings.shutdown_timeout_s),
    )


@contextlib.contextmanager
def _signals_to(drain: Drain) -> Iterator[None]:
    """Drain at the first signal; the second one gets the system's default."""
    loop = asyncio.get_running_loop()

    def on_signal() -> None:
        drain.request()
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_DFL)

    for number in _SIGNALS:
        loop.add_signal_handler(number, on_signal)
    try:
        yield
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)


def main(settings: Settings | None = None) -> int:
    """Run a control plane as this process; return its exit status.

    Without ``settings`` they come from the environment. An error is one sentence on stderr.
    """
    try:
        chosen = settings or Settings.load(os.environ)
        log = make_logger(level=chosen.log_level, style=chosen.log_format)
        with (
            standard_logs_through(log),
            asyncio.Runner(loop_factory=_loop_factory()) as runner,
        ):
            runner.run(serve(chosen, handle_signals=True, log=log))
    except ControlError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop
