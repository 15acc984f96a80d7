"""Serves the few files of a test page on loopback, from a thread."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

__all__ = ["serve_files"]

_TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8"}


@contextmanager
def serve_files(files: Mapping[str, Path]) -> Iterator[str]:
    """Serve ``files`` by URL path while the context is open; the address, ending with ``/``."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            path = files.get(self.path)
            body = path.read_bytes() if path else b""
            self.send_response(200 if path else 404)
            self.send_header("Content-Type", _TYPES[path.suffix] if path else "text/plain")
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    # server_close would wait for handlers of connections that the browser keeps open.
    server.daemon_threads, server.block_on_close = True, False
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
