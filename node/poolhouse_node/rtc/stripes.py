"""The extra connections of a link: dialed, proved, joined, dialed again (wire, section 1)."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import TYPE_CHECKING, Any, Final

from poolhouse_node.room.links import LinkFailed, stripe_redial_delay_s
from poolhouse_node.room.mesh import MESH_WAIT_S, MeshGreeting
from poolhouse_node.rtc.connection import STRIPE_LABEL
from poolhouse_node.rtc.peer import ChannelClosed
from poolhouse_node.rtc.tasks import TaskSet
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.messages import parse, to_map
from poolhouse_node.wire.messages.joining import Mesh

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.room.mesh import MeshKey, MeshVerdict
    from poolhouse_node.rtc.connection import ConnectionPort
    from poolhouse_node.rtc.dialer import Dialer
    from poolhouse_node.rtc.link import Link

__all__ = ["Stripe", "Stripes"]

MAX_STRIPES: Final = 7
DIAL_TIMEOUT_S: Final = 20.0
MAX_EARLY_SLICES: Final = 256
"""Slices that wait on a stripe whose proof is still on its way: other channels of the same
association may overtake it. The sender has our proof, so a slice dropped here is a lost frame."""

_log = logging.getLogger(__name__)


class Stripe:
    """One stripe, from open to end. Carries ``mesh`` until both ends have proved themselves."""

    def __init__(
        self,
        connection: ConnectionPort,
        link: Link,
        mesh: MeshGreeting,
        ended: Callable[[Stripe], None],
    ) -> None:
        self.connection = connection
        self.joined = False
        self.ended = asyncio.Event()
        self._link = link
        self._on_end = ended
        self._mesh = mesh
        self._early: list[bytes] = []
        self._timer = asyncio.get_running_loop().call_later(MESH_WAIT_S, self._waited)

    def start(self) -> None:
        """Prove this end and begin to read."""
        self.connection.wire.on_message = self._early_slice
        with contextlib.suppress(ChannelClosed):  # its end follows from listening
            self.connection.send(to_map(self._mesh.greeting()))
        self.connection.listen(self)
        self.roster_changed()  # may list a device of before the proofs, which will say nothing

    def try_join(self) -> None:
        """Join the link if it is admitted and the other end proved itself."""
        if self.joined or self.ended.is_set() or not (self._mesh.accepted and self._link.admitted):
            return
        self.joined = True
        self._timer.cancel()
        self._link.attach(self.connection)
        early, self._early = self._early, []
        for data in early:
            self._link.feed(self.connection, data)

    def close(self) -> None:
        """End it from this side."""
        self._finish()

    # What the connection tells.

    def message(self, value: Any) -> None:
        if not isinstance(value, dict) or self.joined:
            return
        try:
            message = parse(value)
        except WireError:
            return
        if isinstance(message, Mesh):
            self._judged(self._mesh.on_message(message))

    def roster_changed(self) -> None:
        """A device that proved nothing may be known now."""
        if not self.joined and not self.ended.is_set():
            self._judged(self._mesh.again())

    def heard(self) -> None:
        self._link.heard()

    def closed(self, reason: str) -> None:
        _log.info("stripe.closed: to %.8s: %s", self.connection.peer_id, reason)
        self._finish()

    def _early_slice(self, data: bytes) -> None:
        self._link.heard()
        if len(self._early) < MAX_EARLY_SLICES:
            self._early.append(data)

    def _waited(self) -> None:
        self._judged(self._mesh.on_time())

    def _judged(self, verdict: MeshVerdict) -> None:
        if verdict == "accept":
            self.try_join()
        elif verdict == "close":
            _log.info("stripe.unproved: to %.8s", self.connection.peer_id)
            self._finish()

    def _finish(self) -> None:
        if self.ended.is_set():
            return
        self.ended.set()
        self._timer.cancel()
        self._link.detach(self.connection)
        self.connection.close()
        self._on_end(self)


class Stripes:
    """All stripes of one link. The side that dialed the link dials them, once it is admitted."""

    def __init__(self, link: Link, dialer: Dialer, associations: int, mesh: MeshKey) -> None:
        self._link = link
        self._mesh = mesh
        self._dialer = dialer
        self._wanted = associations - 1
        self._stripes: list[Stripe] = []
        self._tasks = TaskSet()
        self._stopped = associations == 0

    def admitted(self) -> None:
        """The link was admitted: dial, and let in what waits."""
        for stripe in list(self._stripes):
            stripe.try_join()
        if self._link.dialed:
            for number in range(self._wanted):
                self._tasks.spawn(self._keep_one(), f"stripe-{number}")

    def roster_changed(self) -> None:
        """Judge again who has not proved itself."""
        for stripe in list(self._stripes):
            stripe.roster_changed()

    def incoming(self, connection: ConnectionPort) -> bool:
        """The other side dialed a stripe; it waits with the link for admission.

        False when it cannot be used: the caller closes it.
        """
        if self._stopped or self._link.dialed or len(self._stripes) >= MAX_STRIPES:
            return False
        self._add(connection)
        return True

    async def stop(self) -> None:
        """Close all stripes and dial no more."""
        self._stopped = True
        stripes = list(self._stripes)
        for stripe in stripes:
            stripe.close()
        await self._tasks.cancel()
        await asyncio.gather(*(stripe.connection.wait_closed() for stripe in stripes))

    def _add(self, connection: ConnectionPort) -> Stripe:
        mesh = MeshGreeting(
            self._mesh,
            peer_id=connection.peer_id,
            my_id=self._dialer.peer_id,
            dialed=connection.dialed,
            binding=connection.binding(),
        )
        stripe = Stripe(connection, self._link, mesh, self._stripes.remove)
        self._stripes.append(stripe)
        stripe.start()
        return stripe

    async def _keep_one(self) -> None:
        """Dial one stripe, and dial it again when it is lost, until it fails too often.

        No engine can mend an association (engines, pitfall 9): a new one takes its place.
        """
        tries = 0
        while True:
            stripe = await self._dial()
            if stripe is not None:
                await stripe.ended.wait()
                # Only a stripe that joined restarts the count: a peer that takes stripes and
                # closes them would be dialed for ever.
                tries = 0 if stripe.joined else tries
            delay_s = stripe_redial_delay_s(tries)
            if delay_s is None:
                _log.info("stripe.given_up: to %.8s", self._link.peer_id)
                return
            tries += 1
            await asyncio.sleep(delay_s)

    async def _dial(self) -> Stripe | None:
        try:
            connection = await self._dialer.connect(
                self._link.peer_id, label=STRIPE_LABEL, timeout_s=DIAL_TIMEOUT_S
            )
        except LinkFailed as failure:
            _log.info("stripe.failed: to %.8s: %s", self._link.peer_id, failure.kind)
            return None
        if self._stopped:
            connection.close()
            return None
        return self._add(connection)
