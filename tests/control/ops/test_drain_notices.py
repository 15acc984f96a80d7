"""A replica that ends still tells senders that the peer they asked for never came."""

from __future__ import annotations

import pytest

from poolhouse_control.ops.drain import Drain, DrainTimes
from poolhouse_control.ops.health import Health
from poolhouse_control.ops.logs import make_logger
from poolhouse_control.signaling.hub import Hub
from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.messages import ConnectParams
from poolhouse_control.signaling.outbox import Outbox
from poolhouse_control.signaling.presence_memory import MemoryPresence
from poolhouse_control.signaling.switchboard import Switchboard
from poolhouse_control.signaling.tally import DisconnectReason


class Wire:
    """A client that answers a close at once."""

    is_writable = True

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.is_closed = False

    def send_text(self, text: str) -> None:
        self.texts.append(text)

    def close(self, code: int) -> None:
        self.is_closed = True

    farewell = close

    def abort(self) -> None:
        pytest.fail("it answered")


async def run_drain(notice_s: float) -> int:
    """Drain with one message that waits; how many still wait afterwards."""
    limits = Limits(expire_after_s=0.1)
    hub = Hub(limits, key="peerjs")
    log = make_logger(level="error")
    board = Switchboard(hub, MemoryPresence(limits), log, sweep_every_s=0.01)
    async with board.running():
        wire = Wire()
        socket = board.attach(Outbox(limits, wire))
        await board.connect(socket, ConnectParams(peer_id="A", token="t", key="peerjs"))
        left = board.frame(socket, '{"type":"OFFER","dst":"nobody","payload":1}')
        assert left is not None
        await left
        assert hub.waiting_count == 1
        times = DrainTimes(delay_s=0, spread_s=0, grace_s=0, notice_s=notice_s)
        await Drain(times, Health(), board, log).run()
        assert wire.is_closed
        waiting = hub.waiting_count
        await board.closed(socket, DisconnectReason.SHUTDOWN)
    return waiting


async def test_a_drain_ends_when_nothing_waits_any_more() -> None:
    assert await run_drain(notice_s=5) == 0


async def test_a_drain_waits_no_longer_than_it_may() -> None:
    assert await run_drain(notice_s=0) == 1
