"""Structured logs to stderr: JSON for machines, plain lines on a terminal.

Never in a log: keys, tokens, query strings of sockets, credentials. Peer ids are shortened,
because the id of a host holds its room's code.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TextIO

import structlog

if TYPE_CHECKING:
    from collections.abc import Iterator

    from structlog.typing import FilteringBoundLogger, Processor

__all__ = ["make_logger", "short_id", "standard_logs_through"]

_SHOWN_CHARS: Final = 8


def short_id(peer_id: str) -> str:
    """Shorten an id: enough to follow one peer through a log, not enough to join its room."""
    printable = "".join(char if char.isprintable() else "?" for char in peer_id[:_SHOWN_CHARS])
    return printable if len(peer_id) <= _SHOWN_CHARS else printable + "…"


def make_logger(
    *, level: str = "info", style: str = "auto", stream: TextIO | None = None
) -> FilteringBoundLogger:
    """Build a logger. It touches no global state, so that several can live in one process."""
    out = stream if stream is not None else sys.stderr
    logger: FilteringBoundLogger = structlog.wrap_logger(
        _Sink(out),
        processors=_processors(style, out),
        wrapper_class=structlog.make_filtering_bound_logger(_level_number(level)),
        cache_logger_on_first_use=True,
    )
    return logger


@contextmanager
def standard_logs_through(log: FilteringBoundLogger) -> Iterator[None]:
    """Send warnings of libraries through ``log`` while open. For a process of our own only."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    logging.basicConfig(level=logging.WARNING, handlers=[_Forwarder(log)], force=True)
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)


class _Sink:
    """A stream that a reader may have closed: a lost log line must not end a connection."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def msg(self, message: str) -> None:
        """Write a line."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.write(message + "\n")
            self._stream.flush()

    log = debug = info = warn = warning = error = critical = exception = msg


class _Forwarder(logging.Handler):
    def __init__(self, log: FilteringBoundLogger) -> None:
        super().__init__()
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        fields: dict[str, Any] = {"logger": record.name, "text": record.getMessage()}
        if record.exc_info:
            fields["exc_info"] = record.exc_info
        self._log.log(record.levelno, "library.said", **fields)


def _processors(style: str, out: TextIO) -> list[Processor]:
    shared: list[Processor] = [
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    if style == "json" or (style == "auto" and not out.isatty()):
        return [*shared, structlog.processors.dict_tracebacks, structlog.processors.JSONRenderer()]
    return [*shared, structlog.dev.ConsoleRenderer(colors=out.isatty())]


def _level_number(level: str) -> int:
    return logging.getLevelNamesMapping()[level.upper()]
