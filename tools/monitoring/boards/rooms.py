"""Rooms and laps: answers, the way of a frame through the chain, the links under it."""

from __future__ import annotations

from tools.monitoring.boards.parts import heatmap, quantiles, rate
from tools.monitoring.grafana import Board, Panel, Query, Row

__all__ = ["ROOMS"]

_PEOPLE = Row(
    "What people notice",
    (
        Panel(
            "Tokens a second",
            "Of the answers of each room, which its host makes.",
            "short",
            (
                Query(
                    rate("poolhouse_gen_tokens_total", "instance", 'kind="answer"'), "{{instance}}"
                ),
            ),
        ),
        heatmap(
            "When does the first token come?",
            "From a question's arrival. The objective is 20 s for nine of ten.",
            "poolhouse_gen_time_to_first_token_seconds",
            width=8,
        ),
        Panel(
            "How even are the tokens?",
            "Time between two tokens.",
            "s",
            quantiles("poolhouse_gen_inter_token_seconds"),
        ),
        Panel(
            "How do answers end?",
            "By outcome, a second; and how often an interrupted one went on.",
            "ops",
            (
                Query(rate("poolhouse_gen_total", "outcome"), "{{outcome}}"),
                Query("sum(rate(poolhouse_gen_resumed_total{ON}[$__rate_interval]))", "resumed"),
            ),
        ),
        Panel(
            "Questions that wait",
            "One answer runs at a time in a room; beside it, how many may wait.",
            "short",
            (
                Query("poolhouse_gen_queue_length{ON}", "{{instance}}"),
                Query("max(poolhouse_gen_queue_limit{ON})", "may wait"),
            ),
        ),
        Panel(
            "How long do questions wait?",
            "From arrival to their turn.",
            "s",
            quantiles("poolhouse_gen_queue_seconds"),
        ),
        Panel(
            "How long do answers take?",
            "From a question's arrival to the end of its answer.",
            "s",
            quantiles("poolhouse_gen_duration_seconds"),
        ),
        Panel(
            "How long are prompts and answers?",
            "Medians, in tokens.",
            "short",
            (
                Query(
                    "histogram_quantile(0.5, "
                    + rate("poolhouse_gen_prompt_tokens_bucket", "le")
                    + ")",
                    "prompt",
                ),
                Query(
                    "histogram_quantile(0.5, "
                    + rate("poolhouse_gen_answer_tokens_bucket", "le")
                    + ")",
                    "answer",
                ),
            ),
        ),
        Panel(
            "Prompt tokens a second",
            "Of each room.",
            "short",
            (
                Query(
                    rate("poolhouse_gen_tokens_total", "instance", 'kind="prompt"'), "{{instance}}"
                ),
            ),
        ),
    ),
)

_LAPS = Row(
    "Laps: a frame's way through the chain and back",
    (
        heatmap(
            "Laps of one token",
            "What each token of an answer takes, beside the host's own computing.",
            "poolhouse_lap_duration_seconds",
            'kind="decode"',
            width=8,
        ),
        Panel(
            "How long are laps?",
            "95th percentile by room and kind.",
            "s",
            (
                Query(
                    "histogram_quantile(0.95, "
                    + rate("poolhouse_lap_duration_seconds_bucket", "instance, kind, le")
                    + ")",
                    "{{instance}} {{kind}}",
                ),
            ),
            bad_above=2,
        ),
        Panel(
            "Laps that do not come back",
            "Frames that were given up, a second.",
            "ops",
            (
                Query(
                    rate("poolhouse_lap_timeouts_total", "instance, kind"), "{{instance}} {{kind}}"
                ),
            ),
            bad_above=0.02,
        ),
        Panel(
            "How long does each device compute?",
            "Median of a frame of one token: what is left of a lap is the network.",
            "s",
            (
                Query(
                    "histogram_quantile(0.5, "
                    + rate("poolhouse_engine_step_seconds_bucket", "instance, le", 'kind="decode"')
                    + ")",
                    "{{instance}}",
                ),
            ),
        ),
        Panel(
            "Round trips of pings",
            "Median and 95th percentile by device.",
            "s",
            quantiles("poolhouse_link_rtt_seconds", "instance"),
        ),
        Panel(
            "Frames",
            "By device and direction, a second.",
            "ops",
            (
                Query(
                    rate("poolhouse_link_frames_total", "instance, direction"),
                    "{{instance}} {{direction}}",
                ),
            ),
        ),
    ),
)

_LINKS = Row(
    "Links and devices",
    (
        Panel(
            "Links",
            "By state: open, held until both ends are let in, and of the open ones by relay.",
            "short",
            (Query("sum by (state) (poolhouse_links{ON})", "{{state}}"),),
        ),
        Panel(
            "Share of links that go through a relay",
            "Of those that are open.",
            "percentunit",
            (
                Query(
                    'sum(poolhouse_links{state="relayed", ON})'
                    ' / sum(poolhouse_links{state="open", ON})',
                    "relayed",
                ),
            ),
            bad_above=0.5,
            highest=1,
        ),
        Panel(
            "Bytes of frames",
            "With their headers. Small frames go twice, so that a lost packet costs no time. Quiet "
            "links are kept awake.",
            "Bps",
            (
                Query(
                    rate("poolhouse_link_bytes_total", "direction, copy"), "{{direction}} {{copy}}"
                ),
                Query(
                    "sum(rate(poolhouse_link_keepalives_total{ON}[$__rate_interval]))",
                    "keep-alives",
                ),
            ),
        ),
        Panel(
            "Frames that came late or not at all",
            "Frames that had to wait for an earlier one, and frames given up, a second.",
            "ops",
            (
                Query(rate("poolhouse_link_frames_late_total", "instance"), "{{instance}} late"),
                Query(
                    rate("poolhouse_link_gaps_skipped_total", "instance, cause"),
                    "{{instance}} lost, {{cause}}",
                ),
            ),
        ),
        Panel(
            "Who comes and goes?",
            "Devices that hosts let in, and that left, by reason, a second.",
            "ops",
            (
                Query(
                    "sum(rate(poolhouse_room_devices_joined_total{ON}[$__rate_interval]))", "joined"
                ),
                Query(rate("poolhouse_room_devices_left_total", "reason"), "left: {{reason}}"),
            ),
        ),
        Panel(
            "Returns and deals",
            "Devices that came back into their room, by cause, and deals of the layers, a second.",
            "ops",
            (
                Query(rate("poolhouse_room_rejoins_total", "cause"), "back: {{cause}}"),
                Query(rate("poolhouse_deals_total", "cause"), "deal: {{cause}}"),
            ),
        ),
    ),
)

ROOMS = Board(
    "rooms",
    "poolhouse / rooms and laps",
    "Answers, the way of a frame through the chain, the links under it.",
    (_PEOPLE, _LAPS, _LINKS),
    home="poolhouse_room_connected",
)
