"""The files of deploy/prometheus and deploy/grafana, as tests read them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import yaml

__all__ = ["BOARD_FILES", "PROMETHEUS", "ROOT", "RULE_FILES", "boards", "rule_files"]

ROOT = Path(__file__).resolve().parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RULE_FILES = sorted(PROMETHEUS.glob("rules/*.yml"))
BOARD_FILES = sorted(ROOT.glob("deploy/grafana/dashboards/*.json"))


def rule_files() -> list[dict[str, Any]]:
    """What the rule files say."""
    return [yaml.safe_load(path.read_text(encoding="utf-8")) for path in RULE_FILES]


def boards() -> dict[str, dict[str, Any]]:
    """Every dashboard by the name of its file, without the ending."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in BOARD_FILES}
