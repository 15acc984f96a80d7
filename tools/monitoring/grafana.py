"""Dashboards as Grafana 12 reads them, from rows of panels."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

__all__ = ["Board", "Panel", "Query", "Row", "to_json"]

type Kind = Literal["stat", "timeseries", "heatmap", "table"]

SCHEMA_VERSION: Final = 41
"""Of Grafana 12.1, which deploy/compose.yaml runs."""
COLUMNS: Final = 24
ROW_HEIGHT: Final = 1
DATASOURCE: Final = {"type": "prometheus", "uid": "$datasource"}
SELECTED: Final = 'namespace=~"$namespace", job=~"$job", instance=~"$instance"'
"""Stands for ``ON`` in the expressions of boards."""


@dataclass(frozen=True, slots=True)
class Query:
    """One expression; ``legend`` names its series by their labels: ``{{instance}}``."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture. A question or a noun as its title."""

    title: str
    description: str
    unit: str
    queries: tuple[Query, ...]
    kind: Kind = "timeseries"
    width: int = 8
    height: int = 8
    bad_above: float | None = None
    """Where an alert has its threshold."""
    bad_below: float | None = None
    highest: float | None = None
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """Panels under one heading."""

    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard. ``topic`` is its file's name and its uid, for ever."""

    topic: str
    title: str
    description: str
    rows: tuple[Row, ...]
    home: str
    """The metric whose labels fill the variables."""

    @property
    def uid(self) -> str:
        return f"poolhouse-{self.topic}"


def to_json(board: Board) -> dict[str, Any]:
    """The dashboard, ready to be provisioned."""
    return {
        "annotations": {"list": []},
        "description": board.description,
        "editable": True,
        "graphTooltip": 1,
        "id": None,
        "links": [_link_to_the_others()],
        "panels": _place(board.rows),
        "refresh": "30s",
        "schemaVersion": SCHEMA_VERSION,
        "tags": ["poolhouse"],
        "templating": {"list": _variables(board.home)},
        "time": {"from": "now-6h", "to": "now"},
        "timezone": "browser",
        "title": board.title,
        "uid": board.uid,
    }


def _link_to_the_others() -> dict[str, Any]:
    return {
        "asDropdown": False,
        "includeVars": True,
        "keepTime": True,
        "tags": ["poolhouse"],
        "title": "poolhouse",
        "type": "dashboards",
    }


def _variables(home: str) -> list[dict[str, Any]]:
    narrower = {
        "namespace": f"label_values({home}, namespace)",
        "job": f'label_values({home}{{namespace=~"$namespace"}}, job)',
        "instance": f'label_values({home}{{namespace=~"$namespace", job=~"$job"}}, instance)',
    }
    source = {"name": "datasource", "label": "Data source", "type": "datasource"}
    return [
        source | {"query": "prometheus"},
        *(_variable(name, query) for name, query in narrower.items()),
    ]


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
        "datasource": DATASOURCE,
        "definition": query,
        "includeAll": True,
        "label": name.capitalize(),
        "multi": True,
        "name": name,
        "query": {"query": query, "refId": f"variable-{name}"},
        "refresh": 2,
        "sort": 1,
        "type": "query",
    }


# ---- panels -------------------------------------------------------------------------------------


def _place(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """Panels from left to right and from top to bottom, each line as high as its panels."""
    placed: list[dict[str, Any]] = []
    y = 0
    for row in rows:
        placed.append(_row(row, len(placed) + 1, y))
        y, x = y + ROW_HEIGHT, 0
        for panel in row.panels:
            if x + panel.width > COLUMNS:
                x, y = 0, y + panel.height
            place = {"h": panel.height, "w": panel.width, "x": x, "y": y}
            placed.append(_panel(panel, len(placed) + 1, place))
            x += panel.width
        y += row.panels[-1].height
    return placed


def _row(row: Row, number: int, y: int) -> dict[str, Any]:
    place = {"h": ROW_HEIGHT, "w": COLUMNS, "x": 0, "y": y}
    return {
        "collapsed": False,
        "gridPos": place,
        "id": number,
        "panels": [],
        "title": row.title,
        "type": "row",
    }


def _panel(panel: Panel, number: int, place: dict[str, int]) -> dict[str, Any]:
    return {
        "datasource": DATASOURCE,
        "description": panel.description,
        "fieldConfig": {"defaults": _defaults(panel), "overrides": []},
        "gridPos": place,
        "id": number,
        "options": _options(panel),
        "targets": [_target(panel, query, n) for n, query in enumerate(panel.queries)],
        "title": panel.title,
        "type": panel.kind,
    }


def _target(panel: Panel, query: Query, number: int) -> dict[str, Any]:
    is_now = panel.kind in {"stat", "table"}
    return {
        "datasource": DATASOURCE,
        "editorMode": "code",
        "expr": query.expr.replace("ON", SELECTED),
        "format": {"heatmap": "heatmap", "table": "table"}.get(panel.kind, "time_series"),
        "instant": is_now,
        "legendFormat": query.legend or "__auto",
        "range": not is_now,
        "refId": chr(ord("A") + number),
    }


def _defaults(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"min": 0, "thresholds": _thresholds(panel), "unit": panel.unit}
    if panel.highest is not None:
        defaults["max"] = panel.highest
    if panel.kind == "timeseries":
        defaults["custom"] = {
            "fillOpacity": 20 if panel.stacked else 5,
            "lineWidth": 1,
            "showPoints": "never",
            "stacking": {"group": "A", "mode": "normal" if panel.stacked else "none"},
            "thresholdsStyle": {"mode": "off" if _is_plain(panel) else "line"},
        }
    return defaults


def _is_plain(panel: Panel) -> bool:
    return panel.bad_above is None and panel.bad_below is None


def _thresholds(panel: Panel) -> dict[str, Any]:
    steps: list[dict[str, Any]] = [{"color": "green", "value": None}]
    if panel.bad_above is not None:
        steps.append({"color": "red", "value": panel.bad_above})
    if panel.bad_below is not None:
        steps = [{"color": "red", "value": None}, {"color": "green", "value": panel.bad_below}]
    return {"mode": "absolute", "steps": steps}


def _options(panel: Panel) -> dict[str, Any]:
    match panel.kind:
        case "stat":
            return {
                "colorMode": "none" if _is_plain(panel) else "value",
                "graphMode": "none",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
            }
        case "heatmap":
            return {
                "calculate": False,
                "color": {"mode": "scheme", "scheme": "Blues"},
                "yAxis": {"unit": panel.unit},
            }
        case "table":
            return {"showHeader": True}
        case _:
            legend = {"calcs": ["lastNotNull", "max"], "displayMode": "table"}
            return {
                "legend": legend | {"placement": "bottom", "showLegend": True},
                "tooltip": {"mode": "multi", "sort": "desc"},
            }
