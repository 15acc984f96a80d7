"""``python -m poolhouse_control``: settings from the environment."""

from poolhouse_control.main import main

raise SystemExit(main())
