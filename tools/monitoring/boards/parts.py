"""Pieces that several boards have."""

from __future__ import annotations

from tools.monitoring.grafana import Panel, Query, Row

__all__ = ["heatmap", "machine", "quantiles", "rate"]


def rate(metric: str, by: str, labels: str = "") -> str:
    """How often a counter counted, a second."""
    inside = f"{labels}, ON" if labels else "ON"
    return f"sum by ({by}) (rate({metric}{{{inside}}}[$__rate_interval]))"


def quantiles(metric: str, by: str = "", labels: str = "") -> tuple[Query, ...]:
    """The median and the 95th percentile of a histogram, by labels if any."""
    named = "".join(f" {{{{{label.strip()}}}}}" for label in by.split(",") if label.strip())
    buckets = rate(f"{metric}_bucket", f"{by}, le" if by else "le", labels)
    return tuple(
        Query(f"histogram_quantile({share}, {buckets})", f"p{round(share * 100)}{named}")
        for share in (0.5, 0.95)
    )


def heatmap(title: str, description: str, metric: str, labels: str = "", width: int = 12) -> Panel:
    """All of a histogram over time."""
    inside = f"{labels}, ON" if labels else "ON"
    expr = f"sum by (le) (increase({metric}_bucket{{{inside}}}[$__rate_interval]))"
    return Panel(title, description, "s", (Query(expr, "{{le}}"),), kind="heatmap", width=width)


def machine() -> Row:
    """How the processes are."""
    lag = rate("poolhouse_loop_lag_seconds_bucket", "instance, le")
    return Row(
        "The processes",
        (
            Panel(
                "How late is the event loop?",
                "99th percentile of how late a timer runs. One thread serves every socket: while "
                "it is late, all wait.",
                "s",
                (Query(f"histogram_quantile(0.99, {lag})", "{{instance}}"),),
                bad_above=0.25,
            ),
            Panel(
                "Cores in use",
                "Seconds of CPU a second. At a device, layers compute in threads of their own.",
                "short",
                (Query(rate("process_cpu_seconds_total", "instance"), "{{instance}}"),),
            ),
            Panel(
                "Memory of the process",
                "Resident memory. Weights on a GPU are not in it.",
                "bytes",
                (Query("process_resident_memory_bytes{ON}", "{{instance}}"),),
            ),
        ),
    )
