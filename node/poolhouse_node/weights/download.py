"""One file over HTTP into a ``.part`` file, resumed where it broke off."""

from __future__ import annotations

import errno
import shutil
import time
from typing import TYPE_CHECKING

import httpx

from poolhouse_node.weights.errors import BadReply, DiskFull, PullError
from poolhouse_node.weights.ranges import check_range_reply, exactly

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from poolhouse_node.weights.watch import PullWatch

__all__ = ["download", "write_chunks"]

CONNECT_TIMEOUT_S = 5.0
SILENCE_TIMEOUT_S = 30.0
ATTEMPTS_WITHOUT_GAIN = 3
GAIN_BYTES = 1 << 20
"""An attempt that brought less than this counts as failed."""
PAUSE_S = 0.5
_LAST_BYTE = (1 << 62) - 1
_HOPELESS = frozenset({400, 401, 403, 404, 410, 451})


def download(
    url: str,
    part: Path,
    watch: PullWatch,
    *,
    size_bytes: int | None = None,
    resume: bool = True,
) -> None:
    """Complete ``part`` from ``url``.

    Resumes what is there already, unless told not to: without a digest to check it by, an old
    partial file may be of another version. ``size_bytes``, if known, must be the file's length.

    Raises :class:`PullError` (``BadReply``, ``DiskFull``, ``PullCancelled``); what came in stays.
    """
    if not resume:
        part.unlink(missing_ok=True)
    timeout = httpx.Timeout(SILENCE_TIMEOUT_S, connect=CONNECT_TIMEOUT_S)
    with httpx.Client(timeout=timeout, follow_redirects=True) as client:
        task = _Task(client, url, part, size_bytes, watch)
        failures, started = 0, False
        while not task.complete:
            before = _size(part)
            try:
                task.attempt()
            except (httpx.HTTPError, httpx.InvalidURL, BadReply) as error:
                gain = _size(part) - before
                started = started or gain > 0
                failures = 1 if gain >= GAIN_BYTES else failures + 1
                if failures >= ATTEMPTS_WITHOUT_GAIN or _is_hopeless(error, started):
                    raise _as_pull_error(error) from error
                watch.check()
                time.sleep(PAUSE_S * failures)


class _Task:
    """The state that attempts share."""

    __slots__ = ("_client", "_part", "_size_bytes", "_url", "_version", "_watch", "complete")

    def __init__(
        self,
        client: httpx.Client,
        url: str,
        part: Path,
        size_bytes: int | None,
        watch: PullWatch,
    ) -> None:
        self._client = client
        self._url = url
        self._part = part
        self._size_bytes = size_bytes
        self._watch = watch
        self._version: str | None = None
        """The file's strong ETag as first seen: later parts must be of the same version."""
        self.complete = size_bytes is not None and _size(part) == size_bytes

    def attempt(self) -> None:
        """One request and its body; afterwards the file is complete."""
        have = _size(self._part)
        if self._size_bytes is not None and have > self._size_bytes:
            have = 0
        headers = {"Range": f"bytes={have}-", "Accept-Encoding": "identity"}
        if have and self._version:
            headers["If-Range"] = self._version
        with self._client.stream("GET", self._url, headers=headers) as reply:
            have, length = self._plan(reply, have)
            _check_room(self._part, length)
            chunks: Iterable[bytes] = reply.iter_raw()
            if length is not None:
                chunks = exactly(length, chunks)
            total = None if length is None else have + length
            write_chunks(self._part, have, self._watched(chunks, have, total))
        self.complete = True

    def _plan(self, reply: httpx.Response, have: int) -> tuple[int, int | None]:
        """Where the body starts in the file, and its length if known."""
        announced = reply.headers.get("Content-Length")
        if reply.status_code == httpx.codes.OK:
            # The server sends the whole file: it knows no ranges, or has another version now.
            length = int(announced) if announced and announced.isdecimal() else None
            if None not in (length, self._size_bytes) and length != self._size_bytes:
                raise BadReply("length", f"The file has {length} bytes there.")
            start, length = 0, length or self._size_bytes
        else:
            checked = check_range_reply(
                have,
                _LAST_BYTE,
                status=reply.status_code,
                content_range=reply.headers.get("Content-Range"),
                content_length=announced,
                expected_total=self._size_bytes,
            )
            start, length = have, checked.length
        version = reply.headers.get("ETag", "")
        self._version = version if version.startswith('"') else None
        return start, length

    def _watched(
        self, chunks: Iterable[bytes], done_bytes: int, total_bytes: int | None
    ) -> Iterator[bytes]:
        for chunk in chunks:
            self._watch.check()
            done_bytes += len(chunk)
            yield chunk
            self._watch.progress(done_bytes, total_bytes)


def write_chunks(part: Path, start: int, chunks: Iterable[bytes]) -> None:
    """Write ``chunks`` at byte ``start`` of ``part``; what was behind it is cut off.

    Raises :class:`DiskFull`, :class:`PullError`.
    """
    try:
        with part.open("r+b" if part.exists() else "wb") as file:
            if _size(part) > start:
                file.truncate(start)
            file.seek(start)
            for chunk in chunks:
                file.write(chunk)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(f"The disk of {part.parent} is full.") from error
        raise PullError(f"{part} cannot be written: {error.strerror}.") from error


def _check_room(part: Path, needed_bytes: int | None) -> None:
    free = shutil.disk_usage(part.parent).free
    if needed_bytes is not None and needed_bytes > free:
        raise DiskFull(
            f"The disk of {part.parent} has {free / 1e6:,.0f} MB left; "
            f"{needed_bytes / 1e6:,.0f} MB are still to come."
        )


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0


def _is_hopeless(error: Exception, started: bool) -> bool:
    """Trying again soon would not help. Once bytes came in, a lost network may come back."""
    if isinstance(error, BadReply):
        return error.fault == "range" or error.status in _HOPELESS
    unreachable = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout)
    return isinstance(error, httpx.InvalidURL) or (unreachable and not started)


def _as_pull_error(error: Exception) -> PullError:
    if isinstance(error, PullError):
        return error
    if isinstance(error, httpx.ConnectTimeout):
        return PullError(f"no answer within {CONNECT_TIMEOUT_S:.0f} s")
    if isinstance(error, httpx.ConnectError):
        return PullError("no connection")
    return PullError(f"the transfer broke off ({type(error).__name__})")
