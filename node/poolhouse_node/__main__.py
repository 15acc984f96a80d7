"""The program ``poolhouse``, also as ``python -m poolhouse_node``."""

from __future__ import annotations

import signal

__all__ = ["main"]


def main() -> None:
    """Entry point of the console script."""
    # Before anything is imported: until a command's loop takes over, Ctrl-C ends the process
    # without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    from poolhouse_node.cli.main import app

    app()


if __name__ == "__main__":
    main()
