"""The questions of a host's room, over every deal: taken, refused, remembered (generation, 13)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import msgspec

from poolhouse_node.device.answering import Answering, AnswerRecord, GenerationSettings
from poolhouse_node.device.remembering import Remembering
from poolhouse_node.generate.conversation import Conversation
from poolhouse_node.generate.trunk import Trunk
from poolhouse_node.room.asks import TEXT_CHARACTERS_MAX, Ask, AskRefused
from poolhouse_node.room.record import RecordedSeat, RoomMemory
from poolhouse_node.wire.messages.asking import Busy

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.keeper import ChainKeeper
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.room.record import RecordedLimit
    from poolhouse_node.shard import Shard
    from poolhouse_node.wire.messages import Message

__all__ = ["Questions"]


@dataclass(slots=True)
class Questions:
    """Refuses questions until the layers were dealt; from then on one queue answers them.

    A later deal only changes what computes: the queue, the conversation and an answer that waits
    go on. ``remembered`` is what a host before this one left to go on from.
    """

    keeper: ChainKeeper
    model: RoomModel
    compute: Compute
    settings: GenerationSettings
    draw: Callable[[], float]
    broadcast: Callable[[Message], None]
    tell: Callable[[str, Message], None]
    notify: Notify
    my_id: Callable[[], str]
    save: Callable[[RoomMemory], None]
    remembered: RoomMemory | None
    limits: Callable[[], list[RecordedLimit]]
    """What devices are dealt at most, after they were killed by their layers."""
    remembering: Remembering = field(init=False)
    """Saves what is to be remembered while its owner runs its ``work``."""
    answering: Answering | None = None
    """``None`` before the first deal."""

    def __post_init__(self) -> None:
        self.remembering = Remembering(self.memory, self.save, lambda: self.is_busy)

    @property
    def is_busy(self) -> bool:
        """An answer runs."""
        return self.answering is not None and self.answering.is_busy

    @property
    def waiting(self) -> int:
        """Questions behind the one that runs."""
        return len(self.answering.queue.waiting) if self.answering else 0

    def ask(self, ask: Ask) -> asyncio.Future[AnswerRecord]:
        """Queue a question. Raises :class:`AskRefused`."""
        if self.keeper.degraded is not None:
            raise AskRefused(self.keeper.degraded)
        if self.answering is None:
            raise AskRefused("The model is not loaded yet; ask again when the room is online.")
        return self.answering.ask(ask)

    def device_asks(self, peer_id: str, name: str, text: str) -> None:
        """Queue a device's question; it is told why not. An empty one is ignored."""
        if not text.strip():
            return
        try:
            self.ask(Ask(peer_id, name, text[:TEXT_CHARACTERS_MAX]))
        except AskRefused as error:
            self.tell(peer_id, Busy(why=str(error)))

    def stop(self, asker: str) -> None:
        """End the running answer after the lap in flight, if this device may."""
        if self.answering is not None:
            self.answering.stop(asker)

    def withdraw(self, asker: str) -> None:
        """A device left: its waiting questions are dropped."""
        if self.answering is not None:
            self.answering.withdraw(asker)

    def forget_caches(self, why: str) -> None:
        """What the devices' caches hold is unknown."""
        if self.answering is not None:
            self.answering.trunk.forget(why)

    def dealt(self, shard: Shard) -> Answering:
        """Compute with this part of the host's and the chain of this deal from now on.

        After the first deal the caller has to run :meth:`Answering.work
        <poolhouse_node.device.answering.Answering.work>`.
        """
        trunk = Trunk(shard, self.compute, self.keeper.chain)
        if self.answering is not None:
            trunk.follow(self.answering.trunk)
            self.answering.trunk = trunk
            return self.answering
        if self.remembered is not None:
            trunk.follow(None)
        self.answering = self._begin(trunk)
        if self.remembered is not None:
            self.answering.take_up(self.remembered)
        return self.answering

    def _begin(self, trunk: Trunk) -> Answering:
        keeper = self.keeper
        return Answering(
            trunk=trunk,
            conversation=Conversation(self.model.tokenizer, self.settings.system),
            settings=self.settings,
            draw=self.draw,
            broadcast=self.broadcast,
            tell=self.tell,
            notify=self.notify,
            my_id=self.my_id,
            until_whole=keeper.until_whole,
            remember=self.remembering.now,
            give_up_waiting=keeper.give_up_waiting,
            awaited=keeper.awaited,
        )

    def memory(self) -> RoomMemory:
        """What a host that is started again needs to go on from here."""
        memory = self.remembered or RoomMemory()
        if self.answering is not None:
            shares = self.keeper.shares
            seats = [RecordedSeat(name=each.name, lo=each.lo, hi=each.hi) for each in shares]
            memory = msgspec.structs.replace(self.answering.memory(), seats=seats)
        return msgspec.structs.replace(memory, limits=self.limits())
