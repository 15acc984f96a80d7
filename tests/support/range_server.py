"""A file server that honours byte ranges, or misbehaves as told."""

import contextlib
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["RangeServer", "serve_ranges"]


@dataclass(slots=True)
class RangeServer:
    """What it serves and how; knobs may be turned between requests."""

    files: dict[str, bytes] = field(default_factory=dict)
    """Content by path, without the leading slash."""
    cut_after: list[int] = field(default_factory=list)
    """The next replies break off after so many body bytes."""
    ignore_range: bool = False
    shift_range: int = 0
    """Content-Range lies by so much."""
    statuses: list[int] = field(default_factory=list)
    """The next requests are answered with these and no body."""
    etag: str = '"one"'
    requests: list[tuple[str, str | None]] = field(default_factory=list)
    """Path and Range header of each request so far."""
    url: str = ""


@contextlib.contextmanager
def serve_ranges(
    server: RangeServer | None = None, address: str = "127.0.0.1"
) -> Iterator[RangeServer]:
    """Serve until the end of the block, on a free port."""
    state = server or RangeServer()

    class Handler(_Handler):
        shared = state

    with ThreadingHTTPServer((address, 0), Handler) as http:
        http.daemon_threads = True
        state.url = f"http://{address}:{http.server_address[1]}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield state
        finally:
            http.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    shared: RangeServer

    def do_GET(self) -> None:
        shared = self.shared
        wanted = self.headers.get("Range")
        path = self.path.lstrip("/").partition("?")[0]
        shared.requests.append((path, wanted))
        content = shared.files.get(path)
        status = shared.statuses.pop(0) if shared.statuses else (200 if content else 404)
        if content is None or status != 200:
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self._send(content, None if shared.ignore_range else self._start(wanted))

    def _start(self, wanted: str | None) -> int | None:
        if self.headers.get("If-Range", self.shared.etag) != self.shared.etag:
            return None
        found = re.fullmatch(r"bytes=(\d+)-", wanted or "")
        return int(found[1]) if found else None

    def _send(self, content: bytes, start: int | None) -> None:
        body = content[start or 0 :]
        self.send_response(200 if start is None else 206)
        if start is not None:
            lie = self.shared.shift_range
            last = len(content) - 1
            self.send_header("Content-Range", f"bytes {start + lie}-{last + lie}/{len(content)}")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("ETag", self.shared.etag)
        self.end_headers()
        if self.shared.cut_after:
            body = body[: self.shared.cut_after.pop(0)]
            self.close_connection = True
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""
