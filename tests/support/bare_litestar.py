"""A Litestar app of one handler, served as the control plane is: the floor of its figures.

Run as a program it takes a free loopback port and prints it.
"""

import asyncio
import socket

import uvicorn
import uvloop
from litestar import Litestar, post


@post("/bare", status_code=200, sync_to_thread=False)
def bare() -> dict[str, str]:
    """The least a handler can do."""
    return {"hello": "world"}


def main() -> None:
    """Serve until killed."""
    app = Litestar([bare], openapi_config=None, logging_config=None)
    config = uvicorn.Config(app, log_config=None, access_log=False, server_header=False)
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(64)  # from now on a client waits instead of being refused
        print(sock.getsockname()[1], flush=True)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            runner.run(uvicorn.Server(config).serve(sockets=[sock]))


if __name__ == "__main__":
    main()
