"""``python -m poolhouse_node`` is the ``poolhouse`` program."""

from poolhouse_node.cli.main import main

if __name__ == "__main__":
    main()
