"""A device that joined a room: a guest that may be dealt layers."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from poolhouse_node.device.answers import AskFailed, GuestScreen, SeenAnswer
from poolhouse_node.device.device import Device, Identity, Peer
from poolhouse_node.device.entrance import Entrance, Secrets
from poolhouse_node.device.events import (
    Dealt,
    LoadProgress,
    Notice,
    RoomDegraded,
    RoomOnline,
    Share,
    StartFailed,
)
from poolhouse_node.device.lent import LentShare
from poolhouse_node.device.load_notes import LoadNotes, NoNotes
from poolhouse_node.device.neighbours import Neighbours
from poolhouse_node.device.stay import RoomEnd, Stay
from poolhouse_node.device.worker import Worker
from poolhouse_node.room.asks import TEXT_CHARACTERS_MAX
from poolhouse_node.room.joining import Joiner
from poolhouse_node.room.known import KnownRoom
from poolhouse_node.room.links import LinkFailed
from poolhouse_node.room.pledge import GIB, count_gb
from poolhouse_node.room.roster import clean_meta, clean_name
from poolhouse_node.room.versions import PROTOCOL, advice_for_us
from poolhouse_node.wire.messages import loading
from poolhouse_node.wire.messages.asking import Ask, Stop
from poolhouse_node.wire.messages.joining import Admit, Auth, Hello, Lobby, Mesh
from poolhouse_node.wire.messages.joining import Roster as RosterMessage

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.events import Notify
    from poolhouse_node.device.load_notes import Notebook
    from poolhouse_node.device.ports import Link, Network, ShardLoader
    from poolhouse_node.generate.ports import Compute
    from poolhouse_node.wire.messages import Message
    from poolhouse_node.wire.slices import Frame

__all__ = ["JoinFailed", "JoinRefused", "JoinedDevice", "RoomEnd"]

JOIN_S = 40.0
NO_ROOM = (
    "No room with that code is open there. Check the code, and that the host is running and "
    "uses the same signaling server."
)


class JoinFailed(Exception):
    """This device did not get into the room, or is out of it; the text says why."""


class JoinRefused(JoinFailed):
    """The host, or this device itself, does not want it: trying again would not help."""


class JoinedDevice(Device):
    """A device in somebody's room. :meth:`join` it, then :meth:`ask`, or :meth:`until_over`."""

    def __init__(
        self,
        network: Network,
        identity: Identity,
        notify: Notify,
        *,
        host_id: str,
        loader: ShardLoader,
        compute: Compute,
        draw_bytes: Callable[[int], bytes],
        secrets: Secrets | None = None,
        trust_unverified: bool = False,
        notebook: Notebook | None = None,
    ) -> None:
        super().__init__(network, identity, notify)
        self.host_id = host_id
        self.known = KnownRoom(identity.name)
        self.screen = GuestScreen(lambda: network.peer_id, notify)
        self._loader, self._compute = loader, compute
        self._online = asyncio.Event()
        self._host_name: str | None = None
        self._secrets, self._trust_unverified = secrets or Secrets(), trust_unverified
        self._draw_bytes = draw_bytes
        self._load_notes = LoadNotes(notebook or NoNotes())
        renew = partial(setattr, self, "identity")
        self._lent = LentShare(
            lambda: self.identity, renew, self._tell_host, lambda: self.is_inside
        )
        self._entrance: Entrance | None = None
        self._neighbours = Neighbours(
            network, self.peers, self.send, self.ping, self.admit, self.drop
        )
        self._stay = Stay(
            lambda: self.tasks,
            dial=lambda timeout_s: network.dial(host_id, timeout_s=timeout_s),
            is_in_lobby=self._is_in_lobby,
            has_host=lambda: host_id in self.peers,
            over=self._room_over,
            notify=notify,
        )

    async def __aenter__(self) -> JoinedDevice:
        await super().__aenter__()
        self.worker = Worker(
            loader=self._loader,
            compute=self._compute,
            tasks=self.tasks,
            tell_host=self._tell_host,
            open_link=self._neighbours.link_to,
            name_of=self.known.name_of,
            host_link=self._host_link,
            notify=self.notify,
            loading_changed=self._loading_changed,
            beyond_pledge=lambda needed_bytes: self._lent.refused(needed_bytes / GIB),
        )
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await super().__aexit__(*exc_info)
        await self.worker.close()

    async def join(self) -> None:
        """Dial the host and wait until it lets this device in. Raises :class:`JoinFailed`."""
        try:
            await self.network.dial(self.host_id, timeout_s=JOIN_S)
        except LinkFailed as error:
            raise JoinFailed(NO_ROOM if error.kind == "no-such-peer" else str(error)) from error
        is_in = await self._stay.until_let_in()
        if self._stay.is_over:
            end = self._stay.end.result()
            raise JoinRefused(end.why) if end.was_refused else JoinFailed(end.why)
        if not is_in:
            raise JoinFailed("The host took the link but said nothing; try again.")

    def _is_in_lobby(self) -> bool:
        return self._entrance is not None and self._entrance.waits_in_lobby

    @property
    def name(self) -> str:
        """What this device is called in the room."""
        return self.known.my_name

    @property
    def is_inside(self) -> bool:
        """The host let this device in, and the link to it stands."""
        return self._stay.is_inside

    async def until_online(self) -> None:
        """Wait until the room can answer. Raises :class:`JoinFailed` when it is over before."""
        if not await self._stay.until(self._online):
            raise JoinFailed(self._stay.end.result().why)

    async def until_over(self) -> RoomEnd:
        """Wait until this device is out of the room."""
        return await asyncio.shield(self._stay.end)

    async def ask(self, text: str) -> SeenAnswer:
        """Ask the room. Raises :class:`AskFailed <poolhouse_node.device.answers.AskFailed>`."""
        if self._stay.is_over:
            raise AskFailed(self._stay.end.result().why)
        if not text.strip():  # a host ignores it
            raise AskFailed("The question is empty.")
        if not self._stay.is_inside:
            raise AskFailed("The link to the host is gone; ask again when it is back.")
        if self.screen.waits:  # the host's messages do not say which of two they are about
            raise AskFailed("Your question before this one is not answered yet.")
        text = text[:TEXT_CHARACTERS_MAX]
        answer = self.screen.expect(text)
        self._tell_host(Ask(text=text))
        return await answer

    def stop(self) -> None:
        """End the answer to our question after the lap in flight."""
        self._tell_host(Stop())

    def lend(self, gb: float) -> None:
        """This room may be dealt so much from now on; its host is told when that is news."""
        self._lent.offer(gb)

    @property
    def lends_gb(self) -> float:
        """What this room may take of the device's memory."""
        return self._lent.lends_gb

    # ---- Device --------------------------------------------------------------------------------

    def greet(self, peer: Peer) -> None:
        if self.is_host(peer):
            self._entrance = self._make_entrance()
            self._entrance.opened(peer)
            return
        self.send(peer, Hello(name=self.name, v=PROTOCOL, meta=self.identity.meta, auth=1))
        self._neighbours.greet(peer)

    def hello_came(self, peer: Peer, hello: Hello) -> None:
        peer.meta = clean_meta(hello.meta, on_host=False)
        if not self.is_host(peer) or self._entrance is None:
            return
        host_name = clean_name(hello.name, self.host_id)
        if self._stay.has_begun and host_name != self._host_name:
            self._end("Another room is open under this code now.")
            return
        self._host_name = host_name
        self._entrance.host_hello(peer, hello)

    def passes_held(self, message: Message) -> bool:
        return isinstance(message, Auth | Lobby | Admit | Mesh)

    def act_on(self, peer: Peer, message: Message) -> None:
        match message:
            case Mesh():
                self._neighbours.mesh_came(peer, message)
            case loading.RangeRequest(id=request):
                self.send(peer, loading.RangePart(id=request, miss=1))
            case _ if self.is_host(peer):
                self._host_says(peer, message)

    def frame_came(self, peer: Peer, frame: Frame) -> None:
        layers = self.worker.layers
        if layers is not None and self.known.may_send_frames(peer.link.peer_id, layers[0]):
            self.worker.put(frame)

    def answered(self, peer: Peer, sent_at: float) -> None:
        self._neighbours.answered(peer)

    def peer_gone(self, peer: Peer, verb: str) -> None:
        self._neighbours.gone(peer.link.peer_id)
        if self.is_host(peer):
            if self._stay.host_gone(verb, path_broke=peer.link.path_broke):
                self.screen.host_lost()
        else:
            self.worker.link_lost(peer.link.peer_id)

    def link_replaced(self, older: Peer) -> None:
        if not self.is_host(older):
            self.worker.link_lost(older.link.peer_id)

    def bye_came(self, peer: Peer, reason: str, *, closed: bool) -> None:
        if self.is_host(peer):
            over = "The host closed the room." if closed else "The host ended this link."
            self._end(reason or over, orderly=closed)
        self.drop(peer, "left")

    def version_refused(self, peer: Peer, version: int | None) -> None:
        if self.is_host(peer):
            self._end(advice_for_us(version))

    def is_host(self, peer: Peer) -> bool:
        return peer.link.peer_id == self.host_id

    def may_be_loading(self, peer: Peer) -> bool:
        """Other devices load at the same time as this one; the host's silence counts always."""
        return not self.is_host(peer) and not self._online.is_set()

    # ---- inside --------------------------------------------------------------------------------

    def _make_entrance(self) -> Entrance:
        secrets = self._secrets
        joiner = Joiner(
            self._draw_bytes,
            self.network.peer_id,
            self.host_id,
            key=secrets.key,
            come_back_pass=secrets.come_back_pass,
        )
        return Entrance(
            joiner,
            secrets,
            self._trust_unverified,
            send=self.send,
            say_hello=self._say_hello,
            go_in=self._go_in,
            leave=self._end,
            notify=self.notify,
        )

    def _say_hello(self, peer: Peer, proofs: dict[str, object]) -> None:
        fields: dict[str, object]
        fields = {"name": self.name, "v": PROTOCOL, "meta": self.identity.meta, "join": 1}
        is_back = self._stay.has_begun or self._secrets.come_back_pass
        if is_back and not self.screen.misses_something:  # who says so gets no history
            fields["back"] = 1  # also a process that was started again: its pass was kept
        if self._load_notes.died is not None:
            fields["died"] = self._load_notes.died
        self._lent.greeted()
        self.send(peer, Hello(**fields, **proofs))  # type: ignore[arg-type]  # the fields of Hello

    def _go_in(self, peer: Peer, mesh_key: str) -> None:
        self.network.mesh.key = mesh_key
        if not peer.admitted:
            self.admit(peer)
            self._load_notes.told()
            self._stay.went_in()
            self._lent.catch_up()

    def _host_says(self, peer: Peer, message: Message) -> None:
        match message:
            case Auth() | Lobby() | Admit() if self._entrance is not None:
                self._at_the_gate(peer, self._entrance, message)
            case RosterMessage():
                self._roster(message)
            case loading.InventoryRequest(url=url):
                self.send(peer, loading.Inventory(url=url, have=[]))
            case loading.Load():
                self.known.deal_begins()
                self._lent.dealt()
                self.worker.take_load(message)
            case loading.Next():
                self.worker.take_next(message)
            case loading.HostProgress(all=shares):
                for name, percent in shares.items():
                    self.notify(LoadProgress(name, int(percent)))
            case _:
                self._room_changed(message)

    def _at_the_gate(self, peer: Peer, entrance: Entrance, message: Message) -> None:
        match message:
            case Auth():
                entrance.challenged(peer, message)
            case Lobby():
                entrance.in_lobby()
            case Admit() if not peer.admitted:
                entrance.admitted(peer, message)

    def _room_changed(self, message: Message) -> None:
        match message:
            case loading.Layers():
                self._layers(message)
            case loading.ReadyAll(label=label, ctx=context_size):
                self._online.set()
                self.screen.room_online()
                self.notify(RoomOnline(label, context_size or 0))
            case loading.Wait():
                self.notify(Notice("The room is not online yet; its host has to deal the layers."))
            case loading.Redeal():
                self._online.clear()
            case loading.Degraded(why=why):
                self.notify(RoomDegraded(why))
            case loading.ShareLimit():
                self._lower_share(message)
            case loading.StartFailed(why=why):
                self.notify(StartFailed(why))
                self.worker.release()
            case _:
                self.screen.take(message)

    def _roster(self, message: RosterMessage) -> None:
        self.known.take_roster(message, self.network.peer_id)
        self.network.mesh.proves = self.known.roster.proves
        self._neighbours.roster_changed()

    def _layers(self, message: loading.Layers) -> None:
        self.known.take_layers(message)
        sizes_gb = message.held or {}
        self._lent.counted(count_gb(sizes_gb.get(self.name)))
        shares = [
            Share(name, lo, hi, sizes_gb.get(name, 0.0))
            for name, (lo, hi) in self.known.held.items()
        ]
        self.notify(Dealt("", tuple(shares), tuple((message.out or {}).items())))
        if self.name not in message.by and self.worker.layers is not None:
            self.worker.release()

    def _lower_share(self, limit: loading.ShareLimit) -> None:
        """The host deals this device less: it was killed while it loaded."""
        self._lent.limited(limit)
        self.notify(Notice(limit.why or "The host deals this device fewer layers from now on."))

    def _loading_changed(self, loading_now: bool) -> None:
        self.loading = loading_now
        self._load_notes.loading(self.tasks, now=loading_now)

    def _host_link(self) -> Link | None:
        peer = self.peers.get(self.host_id)
        return peer.link if peer else None

    def _tell_host(self, message: Message) -> None:
        if isinstance(message, loading.Progress):
            self.notify(LoadProgress(self.name, int(message.pct)))
        peer = self.peers.get(self.host_id)
        if peer is not None:
            self.send(peer, message)

    def _room_over(self) -> None:
        self.screen.fail(self._stay.end.result().why)
        self.worker.release()

    def _end(self, why: str, *, orderly: bool = False) -> None:
        self._stay.finish(why, orderly=orderly)
