"""The device that opened the room: lets devices in, deals the layers, answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from poolhouse_node.device.dealing import StartError
from poolhouse_node.device.device import Device, Identity, Peer
from poolhouse_node.device.doorman import Doorman
from poolhouse_node.device.events import DeviceLeft, Notice, RoomOnline
from poolhouse_node.device.keeper import REDEAL_AFTER_S, ChainKeeper
from poolhouse_node.device.load_deaths import LoadDeaths
from poolhouse_node.device.namesakes import Namesakes
from poolhouse_node.device.questions import Questions
from poolhouse_node.device.reception import Reception
from poolhouse_node.device.status import room_state, room_status
from poolhouse_node.room.asks import Ask, AskRefused
from poolhouse_node.room.pledge import GIB
from poolhouse_node.room.returning import DEAD_LINK_WAIT_S
from poolhouse_node.room.roster import Member, Roster, clean_meta, clean_name
from poolhouse_node.room.versions import PROTOCOL
from poolhouse_node.wire.messages import loading
from poolhouse_node.wire.messages.asking import Ask as AskMessage
from poolhouse_node.wire.messages.asking import Stop
from poolhouse_node.wire.messages.joining import AuthProof, Bye, Hello, Pledge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from poolhouse_node.device.answering import AnswerRecord, GenerationSettings
    from poolhouse_node.device.events import Notify, Share
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.device.ports import Network, ShardLoader
    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.room.gate import Gate, GateState
    from poolhouse_node.room.record import RoomMemory
    from poolhouse_node.shard import Shard
    from poolhouse_node.wire.messages import Message
    from poolhouse_node.wire.slices import Frame

__all__ = ["Host", "HostSettings"]


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What the person who opened the room chose."""

    generation: GenerationSettings
    split: tuple[int, ...] | None = None
    """Layers per device, host first; ``None`` deals by memory."""
    denies_unknown: bool = False
    """Refuse devices that prove nothing instead of asking the person."""
    redeal_after_s: float | None = REDEAL_AFTER_S
    """A chain that is not whole for so long is dealt again; ``None``: only by hand."""


class Host(Device):
    """A room's host. :meth:`start` brings the model online, :meth:`ask` asks it."""

    def __init__(
        self,
        network: Network,
        identity: Identity,
        notify: Notify,
        *,
        model: RoomModel,
        loader: ShardLoader,
        compute: Compute,
        settings: HostSettings,
        gate: Gate,
        save_gate: Callable[[GateState], None],
        draw: Callable[[], float],
        memory: RoomMemory | None = None,
        save_memory: Callable[[RoomMemory], None] = lambda memory: None,
    ) -> None:
        name = clean_name(identity.name, network.peer_id)  # as its devices will read it
        identity = Identity(name, identity.meta)
        super().__init__(network, identity, notify)
        self.model = model
        self.roster = Roster()
        self.roster.add(Member(network.peer_id, identity.name, identity.meta, proves_links=True))
        self.gate = gate
        network.mesh.key = gate.mesh_key
        network.mesh.proves = self.roster.proves
        self._compute = compute
        self.keeper = ChainKeeper(
            self,
            model=model,
            loader=loader,
            compute=compute,
            split=settings.split,
            redeal_after_s=settings.redeal_after_s,
            was_dealt=memory is not None and bool(memory.seats),
            is_answering=lambda: self.questions.is_busy,
        )
        load_deaths = LoadDeaths.taken_up(model.needs.layer_bytes / GIB, memory)
        self.questions = Questions(
            self.keeper,
            model,
            compute,
            settings.generation,
            draw=draw,
            broadcast=self.broadcast,
            tell=self.tell,
            notify=notify,
            my_id=lambda: network.peer_id,
            save=save_memory,
            remembered=memory,
            limits=load_deaths.limits,
        )
        self.reception = Reception(
            self.roster,
            self.peers,
            self.keeper,
            Namesakes(self.roster, self.peers, self.ping, self.drop),
            load_deaths,
            model,
            answering=lambda: self.questions.answering,
            admit=self.admit,
            send=self.send,
            broadcast=self.broadcast,
            notify=notify,
            expected={seat.name for seat in memory.seats[1:]} if memory else set(),
        )
        self.doorman = Doorman(
            gate,
            my_id=lambda: network.peer_id,
            send=self.send,
            let_in=self.reception.let_in,
            refuse=self.refuse,
            notify=notify,
            save=lambda: save_gate(gate.state()),
            denies_unknown=settings.denies_unknown,
        )

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self.tasks.spawn(self.questions.remembering.work(), "remembering")
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self.questions.remembering.now()
        await super().__aexit__(*exc_info)
        if self.keeper.shard is not None:
            await self._compute.run(self.keeper.shard.close)

    # ---- for the person ------------------------------------------------------------------------

    async def until_devices(self, count: int) -> None:
        """Wait until ``count`` other devices that can hold layers are here."""
        await self.reception.until_devices(count)

    async def until_named(self, names: Iterable[str], *, timeout_s: float) -> bool:
        """Wait until devices of these names are here; False when some did not come in time."""
        others = set(names) - {self.identity.name}
        return await self.reception.until_named(others, timeout_s=timeout_s)

    async def until_changed(self) -> None:
        """Wait until a device comes in, or changes what it lends; also since the last deal."""
        await self.reception.until_changed()

    @property
    def has_changed(self) -> bool:
        """What :meth:`until_changed` waits for has happened."""
        return self.reception.has_changed

    async def start(self) -> None:
        """Deal the layers and wait until every device holds its own.

        Raises :class:`StartError <poolhouse_node.device.dealing.StartError>`; the room is told.
        """
        self.reception.forget_arrivals()
        try:
            await self.keeper.start()
        except StartError as error:
            self.broadcast(loading.StartFailed(why=str(error)))
            raise

    def ask(
        self, text: str, prompt_ids: Sequence[int] | None = None
    ) -> asyncio.Future[AnswerRecord]:
        """Ask as this device's own person. Raises :class:`AskRefused`."""
        ids = None if prompt_ids is None else tuple(prompt_ids)
        return self.questions.ask(Ask(self.network.peer_id, self.identity.name, text, ids))

    def stop(self) -> None:
        """End the running answer after the lap in flight, or the waiting for its devices."""
        self.questions.stop(self.network.peer_id)

    async def close_room(self, reason: str) -> None:
        """Tell everyone that the room is over for good."""
        self.keeper.close()
        self.broadcast(Bye(reason=reason, closed=1))

    def kick(self, name: str) -> bool:
        """End a device's link and take its pass; False when none of that name is in the room."""
        for peer in self.admitted():
            if self.name_of(peer.link.peer_id) == name:
                called = clean_name(peer.hello.name if peer.hello else None, peer.link.peer_id)
                held = self.keeper.seats.at(peer.link.peer_id) is not None
                self.send(peer, Bye(reason="The host ended this link."))
                self.drop(peer, "was sent out by the host")
                if held:
                    self.keeper.deal_soon()
                if peer.is_api_client:
                    self.gate.sent_out.add(peer.link.peer_id)
                self.gate.revoke({name, called})
                self.doorman.save()
                return True
        return False

    def deal_again(self) -> None:
        """Deal the layers anew over the devices that are here. Raises :class:`AskRefused`."""
        if not self.is_online:
            raise AskRefused("The model is not loaded yet.")
        if self.keeper.is_dealing:
            raise AskRefused("The layers are being dealt already.")
        if self.questions.is_busy and self.keeper.is_whole:
            raise AskRefused("An answer is running: stop it first.")
        self.keeper.deal_soon()

    def renew_key(self) -> str:
        """A new invite key: links with the old one let nobody in any more."""
        key = self.gate.renew_key()
        self.doorman.save()
        return key

    def status(self) -> dict[str, object]:
        """Who is here, link by link, and what the room waits for; plain values."""
        return room_status(
            code=self.network.peer_id.rpartition("-")[2],
            state=room_state(self.keeper, self.questions),
            members=self.roster.members.values(),
            peers=self.peers,
            shares=self.shares,
            waiting=self.doorman.waiting(),
            waits_for=self.keeper.waits_for(),
        )

    @property
    def shares(self) -> list[Share]:
        """Who holds which layers; empty before the deal."""
        return self.keeper.shares

    @property
    def questions_waiting(self) -> int:
        """Questions behind the one that runs."""
        return self.questions.waiting

    @property
    def is_online(self) -> bool:
        """The model was loaded everywhere and questions are taken."""
        return self.questions.answering is not None

    @property
    def transport(self) -> str:
        """What carries frames to the chain, for people; ``none`` when there is no chain."""
        found = map(self.admitted_peer, self.keeper.chain.workers)
        return ", ".join(sorted({peer.link.transport for peer in found if peer})) or "none"

    # ---- Device --------------------------------------------------------------------------------

    def greet(self, peer: Peer) -> None:
        self.send(
            peer,
            Hello(
                name=self.identity.name,
                v=PROTOCOL,
                meta=self.identity.meta,
                auth=1,
                gate=1,
                ask=1 if self.gate.asks else 0,
            ),
        )

    def hello_came(self, peer: Peer, hello: Hello) -> None:
        peer.meta = clean_meta(hello.meta, on_host=True)
        self.doorman.hello(peer, hello)

    def passes_held(self, message: Message) -> bool:
        return isinstance(message, AuthProof)

    def act_on(self, peer: Peer, message: Message) -> None:
        peer_id = peer.link.peer_id
        match message:
            case AuthProof():
                self.doorman.proof(peer, message)
            case AskMessage(text=text):
                self.questions.device_asks(peer_id, self.name_of(peer_id), text)
            case Stop():
                self.questions.stop(peer_id)
            case Pledge(gb=gb):
                self.reception.pledged(peer_id, gb)
            case loading.RangeRequest(id=request):
                self.send(peer, loading.RangePart(id=request, miss=1))
            case _:
                self.keeper.take(peer_id, message)

    def frame_came(self, peer: Peer, frame: Frame) -> None:
        self.keeper.chain.take(peer.link.peer_id, frame)

    def answered(self, peer: Peer, sent_at: float) -> None:
        self.keeper.guard.answered(peer.link.peer_id, sent_at)

    def link_replaced(self, older: Peer) -> None:
        self.doorman.gone(older.link.peer_id)
        self.keeper.link_down(older.link.peer_id, "lost its connection")

    def link_died(self, peer: Peer) -> None:
        """The device dials again; until then, and for 45 s, it is still of the room."""
        if not peer.admitted:
            self.forget(peer, "lost its connection")
            return
        name = self.name_of(peer.link.peer_id)
        self.notify(Notice(f"The connection to {name} broke; waiting until it is back."))
        self.keeper.link_down(peer.link.peer_id, "lost its connection")
        asyncio.get_running_loop().call_later(
            DEAD_LINK_WAIT_S, self.forget, peer, "lost its connection"
        )

    def peer_gone(self, peer: Peer, verb: str) -> None:
        peer_id = peer.link.peer_id
        self.doorman.gone(peer_id)
        member = self.roster.remove(peer_id)
        if member is None:
            return
        self.notify(DeviceLeft(member.name, verb))
        self.questions.withdraw(peer_id)
        self.keeper.gone(peer_id, verb)
        self.reception.tell_roster()

    def bye_came(self, peer: Peer, reason: str, *, closed: bool) -> None:
        self.drop(peer, "left")

    def is_host(self, peer: Peer) -> bool:
        return False

    def may_be_loading(self, peer: Peer) -> bool:
        return self.keeper.loads(peer.link.peer_id)

    # ---- Room, for the keeper of the chain -----------------------------------------------------

    def candidates(self, seated: Sequence[str]) -> list[Member]:
        return self.reception.candidates(seated)

    def admitted_peer(self, peer_id: str) -> Peer | None:
        peer = self.peers.get(peer_id)
        return peer if peer is not None and peer.admitted else None

    def name_of(self, peer_id: str) -> str:
        return self.roster.name_of(peer_id)

    def hurry(self) -> None:
        self.network.hurry()

    def tell(self, peer_id: str, message: Message) -> None:
        peer = self.peers.get(peer_id)
        if peer is not None:
            self.send(peer, message)

    def dealing(self, *, now: bool) -> None:
        self.loading = now
        if now:
            self.reception.deal_begins()
            self.questions.remembering.changed()  # a death may be why it is dealt

    def dealt(self, shard: Shard) -> None:
        is_first = not self.is_online
        answering = self.questions.dealt(shard)
        if is_first:
            self.tasks.spawn(answering.work(), "answers")
            self.tasks.spawn(self.keeper.guard.work(), "drop detection")
            self.tasks.spawn(self.keeper.work(), "keeping the chain")
        self.reception.deal_ended()
        self.say_ready()
        answering.say_places()  # also those whose questions a host before this one took
        self.notify(RoomOnline(self.model.label, self.model.context_size))
        self.questions.remembering.changed()

    def say_ready(self) -> None:
        self.broadcast(self.reception.ready_all())

    def forget_caches(self, why: str) -> None:
        self.questions.forget_caches(why)
