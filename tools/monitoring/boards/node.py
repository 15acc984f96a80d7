"""One device: what it holds, how fast it computes, how its process is."""

from __future__ import annotations

from tools.monitoring.boards.parts import machine, quantiles, rate
from tools.monitoring.grafana import Board, Panel, Query, Row

__all__ = ["NODE"]

_ROOM = Row(
    "In its room",
    (
        Panel(
            "Is it in a room?",
            "Rooms each device is inside of; 0 is an alert after ten minutes.",
            "short",
            (Query("poolhouse_room_connected{ON}", "{{instance}}"),),
            width=6,
            bad_below=1,
        ),
        Panel(
            "Can others find it?",
            "1 while every signaling server of its rooms is connected. Open links do without.",
            "short",
            (Query("poolhouse_room_signaling_connected{ON}", "{{instance}}"),),
            width=6,
            bad_below=1,
            highest=1,
        ),
        Panel(
            "Layers",
            "That each device holds or loads.",
            "short",
            (Query("poolhouse_room_seat_layers{ON}", "{{instance}}"),),
            width=6,
            stacked=True,
        ),
        Panel(
            "Roles",
            "Host, worker or guest, over all rooms.",
            "short",
            (Query("sum by (role) (poolhouse_room_role{ON})", "{{role}}"),),
            width=6,
            stacked=True,
        ),
    ),
)

_ENGINE = Row(
    "Computing",
    (
        Panel(
            "How long is a step?",
            "Median and 95th percentile by kind: one frame through the layers here, or the head.",
            "s",
            quantiles("poolhouse_engine_step_seconds", "kind"),
        ),
        Panel(
            "Share of the time that it computes",
            "Seconds in steps a second. At 1 it has no time left.",
            "percentunit",
            (Query(rate("poolhouse_engine_step_seconds_sum", "instance"), "{{instance}}"),),
            highest=1,
        ),
        Panel(
            "Columns a second",
            "Through the layers of each device, by kind.",
            "short",
            (
                Query(
                    rate("poolhouse_engine_tokens_total", "instance, kind"), "{{instance}} {{kind}}"
                ),
            ),
        ),
        Panel(
            "Errors",
            "Of the engine, by kind, a second.",
            "ops",
            (
                Query(
                    rate("poolhouse_engine_errors_total", "instance, kind"), "{{instance}} {{kind}}"
                ),
            ),
        ),
        Panel(
            "Memory of layers",
            "By device and use, on the GPU where there is one.",
            "bytes",
            (
                Query(
                    "sum by (instance, use) (poolhouse_engine_memory_bytes{ON})",
                    "{{instance}} {{use}}",
                ),
            ),
            stacked=True,
        ),
        Panel(
            "Share of the pledge in use",
            "Memory of layers over what the device lends.",
            "percentunit",
            (
                Query(
                    "sum by (instance) (poolhouse_engine_memory_bytes{ON})"
                    " / sum by (instance) (poolhouse_engine_pledge_bytes{ON})",
                    "{{instance}}",
                ),
            ),
            bad_above=0.97,
        ),
    ),
)

_LOADING = Row(
    "Loading, and sending",
    (
        Panel(
            "How long does loading take?",
            "The layers that were dealt to a device.",
            "s",
            quantiles("poolhouse_model_load_seconds"),
            width=6,
        ),
        Panel(
            "Where do model files come from?",
            "Bytes a second by source.",
            "Bps",
            (Query(rate("poolhouse_model_fetch_bytes_total", "source"), "{{source}}"),),
            width=6,
        ),
        Panel(
            "Loads and fetches that fail",
            "A second, by device.",
            "ops",
            (
                Query(rate("poolhouse_model_load_errors_total", "instance"), "load {{instance}}"),
                Query(rate("poolhouse_model_fetch_errors_total", "instance"), "file {{instance}}"),
            ),
            width=6,
        ),
        Panel(
            "Bytes that wait to be sent",
            "Frames that the network has not taken yet.",
            "bytes",
            (Query("poolhouse_link_send_buffered_bytes{ON}", "{{instance}}"),),
            width=6,
        ),
    ),
)

NODE = Board(
    "node",
    "poolhouse / devices",
    "What a device holds, how fast it computes, how its process is.",
    (_ROOM, _ENGINE, _LOADING, machine()),
    home="poolhouse_room_connected",
)
