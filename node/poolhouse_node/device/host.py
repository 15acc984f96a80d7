"""The device that opened the room: lets devices in, deals the layers, answers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.device.answering import Answering, AnswerRecord, GenerationSettings
from poolhouse_node.device.dealing import Start, StartError, make_deal
from poolhouse_node.device.device import Device, Identity, Peer
from poolhouse_node.device.doorman import Doorman
from poolhouse_node.device.events import (
    DeviceJoined,
    DeviceLeft,
    RoomDegraded,
    RoomOnline,
)
from poolhouse_node.device.guard import ChainGuard
from poolhouse_node.device.laps import WorkerChain
from poolhouse_node.device.status import room_status
from poolhouse_node.generate.conversation import Conversation
from poolhouse_node.generate.ports import LapFailed
from poolhouse_node.generate.trunk import Trunk
from poolhouse_node.room.asks import TEXT_CHARACTERS_MAX, Ask, AskRefused
from poolhouse_node.room.roster import Member, Roster, clean_meta, clean_name, device_label
from poolhouse_node.room.versions import PROTOCOL
from poolhouse_node.wire.messages import loading
from poolhouse_node.wire.messages.asking import Ask as AskMessage
from poolhouse_node.wire.messages.asking import Busy, Stop
from poolhouse_node.wire.messages.joining import AuthProof, Bye, Hello, Pledge

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poolhouse_node.device.events import Notify, Share
    from poolhouse_node.device.model import RoomModel
    from poolhouse_node.device.ports import Link, Network, ShardLoader
    from poolhouse_node.generate.ports import Compute, LapFailure
    from poolhouse_node.room.gate import Gate, GateState
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
    ) -> None:
        name = clean_name(identity.name, network.peer_id)  # as its devices will read it
        identity = Identity(name, identity.meta)
        super().__init__(network, identity, notify)
        self.model, self.settings = model, settings
        self.roster = Roster()
        self.roster.add(Member(network.peer_id, identity.name, identity.meta, proves_links=True))
        self.gate = gate
        self.doorman = Doorman(
            gate,
            my_id=lambda: network.peer_id,
            send=self.send,
            let_in=self._let_in,
            refuse=self.refuse,
            notify=notify,
            save=lambda: save_gate(gate.state()),
            denies_unknown=settings.denies_unknown,
        )
        network.mesh.key = gate.mesh_key
        network.mesh.proves = self.roster.proves
        self._loader, self._compute, self._draw = loader, compute, draw
        self._chain = WorkerChain(self._link_to, self._rtt_s, self.roster.name_of)
        self._guard = ChainGuard(
            chain=self._chain_peers,
            watches=self._needs_guard,
            ping=self.ping,
            name_of=self.roster.name_of,
            notify=notify,
        )
        self._start: Start | None = None
        self._starting = False
        self._degraded: str | None = None
        self._answering: Answering | None = None
        self._shard: Shard | None = None
        self._arrivals = asyncio.Event()

    async def __aexit__(self, *exc_info: object) -> None:
        await super().__aexit__(*exc_info)
        if self._shard is not None:
            await self._compute.run(self._shard.close)

    # ---- for the person ------------------------------------------------------------------------

    async def until_devices(self, count: int) -> None:
        """Wait until ``count`` other devices that can hold layers are here."""
        while len(self._candidates()) - 1 < count:
            self._arrivals.clear()
            await self._arrivals.wait()

    async def start(self) -> None:
        """Deal the layers and wait until every device holds its own.

        Raises :class:`StartError <poolhouse_node.device.dealing.StartError>`; the room is told.
        """
        self._starting = True
        try:
            await self._bring_online()
        except StartError as error:
            self._start = None
            self._chain.deal([])
            self.broadcast(loading.StartFailed(why=str(error)))
            raise
        finally:
            self._starting = self.loading = False

    def ask(
        self, text: str, prompt_ids: Sequence[int] | None = None
    ) -> asyncio.Future[AnswerRecord]:
        """Ask as this device's own person. Raises :class:`AskRefused`."""
        ids = None if prompt_ids is None else tuple(prompt_ids)
        return self._ask(Ask(self.network.peer_id, self.identity.name, text, ids))

    def stop(self) -> None:
        """End the running answer after the lap in flight."""
        if self._answering is not None:
            self._answering.stop(self.network.peer_id)

    async def close_room(self, reason: str) -> None:
        """Tell everyone that the room is over for good."""
        self.broadcast(Bye(reason=reason, closed=1))

    def kick(self, name: str) -> bool:
        """End a device's link; False when none of that name is in the room."""
        for peer in self.admitted():
            if self.roster.name_of(peer.link.peer_id) == name:
                self.send(peer, Bye(reason="The host ended this link."))
                self.drop(peer, "was sent out by the host")
                return True
        return False

    def renew_key(self) -> str:
        """A new invite key: links with the old one let nobody in any more."""
        key = self.gate.renew_key()
        self.doorman.save()
        return key

    def status(self) -> dict[str, object]:
        """Who is here, link by link, and what the room waits for; plain values."""
        return room_status(
            code=self.network.peer_id.rpartition("-")[2],
            state=self._state(),
            members=self.roster.members.values(),
            peers=self.peers,
            shares=self.shares,
            waiting=self.doorman.waiting(),
        )

    def _state(self) -> str:
        if self._degraded is not None:
            return self._degraded
        if self._starting:
            return "loading the model"
        if self._answering is None:
            return "waiting for devices"
        return "answering" if self._answering.is_busy else "online"

    @property
    def shares(self) -> list[Share]:
        """Who holds which layers; empty before the deal."""
        return self._start.shares() if self._start else []

    @property
    def is_online(self) -> bool:
        """The model is loaded everywhere and questions are taken."""
        return self._answering is not None

    @property
    def transport(self) -> str:
        """What carries frames to the chain, for people; ``none`` when there is no chain."""
        links = (self._link_to(peer_id) for peer_id in self._chain.workers)
        return ", ".join(sorted({link.transport for link in links if link})) or "none"

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
                self._guest_asks(peer, text)
            case Stop():
                if self._answering is not None:
                    self._answering.stop(peer_id)
            case Pledge(gb=gb):
                self._pledged(peer_id, gb)
            case loading.Progress(pct=percent) if self._start is not None:
                self._start.progress(peer_id, percent)
            case loading.Ready() if self._start is not None:
                self._start.ready(peer_id)
            case loading.ErrorReport():
                self._device_failed(peer_id, message)
            case loading.LinkLost(name=name, up=up):
                self._chain_link_lost(peer_id, name, is_up=bool(up))
            case loading.RangeRequest(id=request):
                self.send(peer, loading.RangePart(id=request, miss=1))

    def frame_came(self, peer: Peer, frame: Frame) -> None:
        self._chain.take(peer.link.peer_id, frame)

    def answered(self, peer: Peer, sent_at: float) -> None:
        self._guard.answered(peer.link.peer_id, sent_at)

    def peer_gone(self, peer: Peer, verb: str) -> None:
        peer_id = peer.link.peer_id
        member = self.roster.remove(peer_id)
        if self.doorman.gone(peer_id) or member is None:
            return
        self.notify(DeviceLeft(member.name, verb))
        if self._answering is not None:
            self._answering.withdraw(peer_id)
        if self._start is not None and peer_id in self._start.workers:
            self._chain_device_gone(member.name, verb)
        self._tell_roster()

    def bye_came(self, peer: Peer, reason: str, *, closed: bool) -> None:
        self.drop(peer, "left")

    def is_host(self, peer: Peer) -> bool:
        return False

    def may_be_loading(self, peer: Peer) -> bool:
        return self._starting

    # ---- devices -------------------------------------------------------------------------------

    def _let_in(self, peer: Peer, hello: Hello) -> None:
        """The gate said yes, and ``admit`` is on its way."""
        peer_id = peer.link.peer_id
        name = clean_name(hello.name, peer_id)
        member = self.roster.add(Member(peer_id, name, peer.meta, proves_links=bool(hello.auth)))
        self.admit(peer)
        self._tell_roster()
        self.notify(DeviceJoined(member.name, device_label(member.meta)))
        self._welcome(peer, member)
        self._arrivals.set()

    def _welcome(self, peer: Peer, member: Member) -> None:
        if self._answering is None:
            self.send(peer, loading.Wait())
            return
        if member.holds_layers and self._start is not None:
            self.broadcast(loading.LeftOut(out=self._left_out()))
        if self._start is not None:
            self.send(peer, self._start.layers_message())
        self.send(peer, self._ready_all())
        self.send(peer, self._answering.history())

    def _left_out(self) -> dict[str, str]:
        """Devices without layers and why; who came after the deal is late."""
        held = {share.name for share in self.shares}
        message = self._start.layers_message() if self._start else None
        reasons = dict(message.out or {}) if message else {}
        for member in self.roster.members.values():
            if member.holds_layers and member.name not in held:
                reasons.setdefault(member.name, "late")
        return reasons

    def _candidates(self) -> list[Member]:
        """Devices that may hold layers: the host, then the others by name (decision 13)."""
        host, *others = self.roster.members.values()
        able = [member for member in others if member.holds_layers]
        return [host, *sorted(able, key=lambda member: member.name)]

    def _pledged(self, peer_id: str, gb: float) -> None:
        member = self.roster.members.get(peer_id)
        if member is not None:
            member.meta["contribGB"] = gb
            self._tell_roster()

    def _tell_roster(self) -> None:
        self.broadcast(self.roster.to_message())

    def _link_to(self, peer_id: str) -> Link | None:
        peer = self.peers.get(peer_id)
        return peer.link if peer is not None and peer.admitted else None

    def _rtt_s(self, peer_id: str) -> float | None:
        peer = self.peers.get(peer_id)
        return peer.rtt_s if peer else None

    # ---- going online --------------------------------------------------------------------------

    async def _bring_online(self) -> None:
        members = self._candidates()
        deal = make_deal(self.model, members, self.settings.split)
        start = self._start = Start(
            self.model, members, deal, self._loader, self._tell, self.broadcast, self.notify
        )
        self.loading = True
        self._chain.deal(start.workers)
        self._shard = await start.run()
        trunk = Trunk(self._shard, self._compute, self._chain)
        generation = self.settings.generation
        self._answering = Answering(
            trunk=trunk,
            conversation=Conversation(self.model.tokenizer, generation.system),
            settings=generation,
            draw=self._draw,
            broadcast=self.broadcast,
            tell=self._tell,
            notify=self.notify,
            my_id=lambda: self.network.peer_id,
        )
        self.tasks.spawn(self._answering.work(), "answers")
        self.tasks.spawn(self._guard.work(), "drop detection")
        self.broadcast(self._ready_all())
        self.notify(RoomOnline(self.model.label, self.model.context_size))

    def _ready_all(self) -> loading.ReadyAll:
        return loading.ReadyAll(
            model=self.model.key,
            label=self.model.label,
            ctx=self.model.context_size,
            out=self._left_out() or None,
        )

    # ---- questions -----------------------------------------------------------------------------

    def _ask(self, ask: Ask) -> asyncio.Future[AnswerRecord]:
        if self._degraded is not None:
            raise AskRefused(self._degraded)
        if self._answering is None:
            raise AskRefused("The model is not loaded yet; ask again when the room is online.")
        return self._answering.ask(ask)

    def _guest_asks(self, peer: Peer, text: str) -> None:
        if not text.strip():
            return
        peer_id = peer.link.peer_id
        ask = Ask(peer_id, self.roster.name_of(peer_id), text[:TEXT_CHARACTERS_MAX])
        try:
            self._ask(ask)
        except AskRefused as error:
            self.send(peer, Busy(why=str(error)))

    def _tell(self, peer_id: str, message: Message) -> None:
        peer = self.peers.get(peer_id)
        if peer is not None:
            self.send(peer, message)

    # ---- trouble -------------------------------------------------------------------------------

    def _device_failed(self, peer_id: str, message: loading.ErrorReport) -> None:
        if self._start is None or peer_id not in self._start.workers:
            return
        name = self.roster.name_of(peer_id)
        if message.load:
            self._start.fail(f"{name} couldn't load its layers ({message.message})")
        kind: LapFailure = "not-a-number" if "NaN" in message.message else "device-error"
        self._chain.report(LapFailed(kind, f"{name} reported an error: {message.message}"))

    def _chain_link_lost(self, peer_id: str, name: str, *, is_up: bool) -> None:
        if is_up or self._start is None or peer_id not in self._start.workers:
            return
        reporter, lost = self.roster.name_of(peer_id), clean_name(name, peer_id)
        to_whom = "" if self._guard.is_stalled(lost) else f" to {reporter}"
        self._chain_device_gone(lost, f"stopped responding{to_whom}")

    def _chain_device_gone(self, name: str, verb: str) -> None:
        share = next((share for share in self.shares if share.name == name), None)
        layers = f" (it held layers {share.lo}–{share.hi - 1})" if share else ""
        sentence = f"{name} {verb}{layers}"
        if self._starting and self._start is not None:
            self._start.fail(f"{sentence} while the model was loading.")
        self._degrade(sentence)

    def _degrade(self, what: str) -> None:
        """The chain is broken: laps in flight fail, nobody may ask."""
        self._chain.break_off(LapFailed("left", f"{what}, so the answer could not go on."))
        if self._answering is not None and self._degraded is None:
            self._degraded = f"{what}; the room cannot answer without it."
            self.broadcast(loading.Degraded(why=self._degraded))
            self.notify(RoomDegraded(self._degraded))

    def _needs_guard(self) -> bool:
        answers = self._answering is not None and self._answering.is_busy
        return answers and not self._chain.is_empty and self._degraded is None

    def _chain_peers(self) -> list[Peer]:
        return [peer for peer_id in self._chain.workers if (peer := self.peers.get(peer_id))]
