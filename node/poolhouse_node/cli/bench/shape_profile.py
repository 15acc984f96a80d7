"""Where a token's time goes, by kernel family."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from poolhouse_node.cli.bench.shape_runs import ShapeRun

__all__ = ["profile_decode"]

_FAMILIES = (
    ("_product", "packed products"),
    ("_add_norm", "residual sums and norms"),
    ("_gate_up", "feed-forward gates"),
    ("_gate_heads", "recurrent gates"),
    ("_convolve", "convolution"),
    ("_recur", "recurrence"),
    ("_write_heads", "heads, keys and values"),
    ("_attend", "attention"),
    ("_finish_heads", "attention sums"),
    ("_router_scores", "router"),
    ("_choose", "router"),
    ("_mix", "sum of experts"),
    ("_pack_halves", "packing for the wire"),
    ("gemm", "bfloat16 products"),
    ("gemv", "bfloat16 products"),
    ("nvjet", "bfloat16 products"),
)


def profile_decode(run: ShapeRun, tokens: int, token_s: float) -> list[str]:
    """Lines of a table of one token's device time; ``token_s`` is what it takes unobserved."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    activities = [ProfilerActivity.CUDA]
    with torch.inference_mode(), profile(activities=activities, acc_events=True) as profiler:
        run.decode(tokens)
    times_us: dict[str, float] = defaultdict(float)
    launches: dict[str, int] = defaultdict(int)
    for event in profiler.key_averages():
        family = _family(event.key)
        times_us[family] += event.self_device_time_total
        launches[family] += event.count
    busy_us = sum(times_us.values())
    lines = ["  a token's time by kernel family:"]
    for family, time_us in sorted(times_us.items(), key=lambda item: -item[1]):
        lines.append(
            f"  {family:26} {time_us / tokens:9.1f} us {launches[family] / tokens:7.1f} launches "
            f"{time_us / busy_us:5.1%}"
        )
    idle_us = token_s * 1e6 - busy_us / tokens
    lines.append(f"  {'between kernels':26} {idle_us:9.1f} us")
    return lines


def _family(name: str) -> str:
    for part, family in _FAMILIES:
        if part in name:
            return family
    return "torch: small operations"
