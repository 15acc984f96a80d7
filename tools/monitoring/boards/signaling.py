"""The control plane: who connects, what is passed on, the store, the relay."""

from __future__ import annotations

from tools.monitoring.boards.parts import heatmap, machine, quantiles, rate
from tools.monitoring.grafana import Board, Panel, Query, Row

__all__ = ["SIGNALING"]

_PEOPLE = Row(
    "What people notice",
    (
        Panel(
            "Peers",
            "Registered identities, by replica.",
            "short",
            (Query("poolhouse_signal_peers{ON}", "{{instance}}"),),
            stacked=True,
        ),
        Panel(
            "How do attempts to register end?",
            "By outcome, a second.",
            "ops",
            (Query(rate("poolhouse_signal_connects_total", "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "Share of attempts that are refused",
            "An alert comes when it stays above a fifth.",
            "percentunit",
            (
                Query(
                    'sum(rate(poolhouse_signal_connects_total{outcome!="opened", ON}'
                    "[$__rate_interval]))"
                    " / sum(rate(poolhouse_signal_connects_total{ON}[$__rate_interval]))",
                    "refused",
                ),
            ),
            bad_above=0.2,
            highest=1,
        ),
        Panel(
            "Why do sockets end?",
            "Registered sockets that ended, by reason, a second.",
            "ops",
            (Query(rate("poolhouse_signal_disconnects_total", "reason"), "{{reason}}"),),
            stacked=True,
        ),
        Panel(
            "Open sockets",
            "Registered or not, by replica.",
            "short",
            (Query("poolhouse_signal_sockets{ON}", "{{instance}}"),),
            stacked=True,
        ),
        Panel(
            "Identities taken over",
            "By right: the same token, or an owner that is dead.",
            "ops",
            (Query(rate("poolhouse_signal_takeovers_total", "kind"), "{{kind}}"),),
        ),
    ),
)

_MESSAGES = Row(
    "Messages",
    (
        Panel(
            "Messages by type",
            "From peer to peer, a second.",
            "ops",
            (Query(rate("poolhouse_signal_messages_total", "type"), "{{type}}"),),
            stacked=True,
        ),
        Panel(
            "Where do messages go?",
            "To a socket here, to another replica, into a queue, or nowhere.",
            "ops",
            (Query(rate("poolhouse_signal_messages_total", "route"), "{{route}}"),),
            stacked=True,
        ),
        Panel(
            "Messages that wait or are lost",
            "Waiting for an absent peer; a second: senders told that nobody came, frames not acted "
            "on, lost because a receiver read too slowly, passed on to another replica.",
            "short",
            (
                Query("sum(poolhouse_signal_queue_messages{ON})", "waiting"),
                Query("sum(rate(poolhouse_signal_expired_total{ON}[$__rate_interval]))", "expired"),
                Query(
                    "sum(rate(poolhouse_signal_dropped_frames_total{ON}[$__rate_interval]))",
                    "not acted on",
                ),
                Query(
                    "sum(rate(poolhouse_signal_send_queue_dropped_total{ON}[$__rate_interval]))",
                    "slow readers",
                ),
                Query(
                    "sum(rate(poolhouse_signal_rerouted_total{ON}[$__rate_interval]))", "rerouted"
                ),
            ),
        ),
        heatmap(
            "How long does a message stay here?",
            "From its arrival to its receiver's outbox, another replica, or a queue.",
            "poolhouse_signal_deliver_seconds",
        ),
        Panel(
            "Bytes",
            "Text frames, by direction.",
            "Bps",
            (Query(rate("poolhouse_signal_message_bytes_total", "direction"), "{{direction}}"),),
            width=6,
        ),
        Panel(
            "Heartbeats",
            "Of clients that wait, a second.",
            "ops",
            (Query(rate("poolhouse_signal_heartbeats_total", "instance"), "{{instance}}"),),
            width=6,
        ),
    ),
)

_STORE = Row(
    "The store, and the replicas that share it",
    (
        Panel(
            "Does the store answer?",
            "1 while it does, by replica. A replica with everything in memory is its own store.",
            "short",
            (Query("poolhouse_store_up{ON}", "{{instance}}"),),
            width=6,
            bad_below=1,
            highest=1,
        ),
        Panel(
            "Replicas",
            "That share the store, as each sees it; and which of them drain.",
            "short",
            (
                Query("poolhouse_replica_leases{ON}", "{{instance}}"),
                Query("poolhouse_drain_state{ON}", "{{instance}} drains"),
            ),
            width=6,
        ),
        Panel(
            "How long does the store take?",
            "95th percentile by what it was asked; after 0.5 s nobody waits any more.",
            "s",
            (
                Query(
                    "histogram_quantile(0.95, "
                    + rate("poolhouse_store_command_seconds_bucket", "op, le")
                    + ")",
                    "{{op}}",
                ),
            ),
            width=6,
            bad_above=0.5,
        ),
        Panel(
            "What the store did not do",
            "Commands not answered well, by reason, and lost probes, a second.",
            "ops",
            (
                Query(rate("poolhouse_store_errors_total", "kind"), "{{kind}}"),
                Query(rate("poolhouse_store_probe_lost_total", "instance"), "probe {{instance}}"),
            ),
            width=6,
        ),
    ),
)

_RELAY = Row(
    "Relays",
    (
        Panel(
            "Requests for relay credentials",
            "By outcome, a second.",
            "ops",
            (Query(rate("poolhouse_relay_credentials_total", "outcome"), "{{outcome}}"),),
            stacked=True,
        ),
        Panel(
            "How long does the provider take?",
            "A hosted one; credentials of your own coturn are made here, without asking.",
            "s",
            quantiles("poolhouse_relay_upstream_seconds"),
            bad_above=2.5,
        ),
        Panel(
            "Relay hosts",
            "That are probed, by what the probes found.",
            "short",
            (Query("sum by (state) (poolhouse_relay_hosts{ON})", "{{state}}"),),
        ),
    ),
)

SIGNALING = Board(
    "signaling",
    "poolhouse / signaling",
    "The control plane: who connects, what is passed on, the store, the relay.",
    (_PEOPLE, _MESSAGES, _STORE, _RELAY, machine()),
    home="poolhouse_signal_peers",
)
