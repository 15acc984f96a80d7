"""The host's side of the gate: challenges, the lobby, letting in (joining, section 3)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.events import DeviceWaits, DeviceWithdrew, Notice
from poolhouse_node.room.gate import REFUSALS, Decision
from poolhouse_node.room.proofs import Transcript
from poolhouse_node.room.roster import clean_meta, clean_name, device_label
from poolhouse_node.wire.messages.joining import Auth, Lobby

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from poolhouse_node.device.device import Peer
    from poolhouse_node.device.events import Notify
    from poolhouse_node.room.gate import Gate
    from poolhouse_node.wire.messages import Message
    from poolhouse_node.wire.messages.joining import AuthProof, Hello

__all__ = ["Doorman", "SeveralWait", "Waiting"]

PROOF_S = 30.0
"""More than a joiner needs to answer a challenge. Who does not may wait nowhere else."""

OLDER_IN = (
    "is an older device: it showed the link's key or its pass as it is. A signaling server in the "
    "middle could have read it."
)
OLDER_HELD = (
    "is an older device that cannot prove its link or pass: it showed the secret as it is, which "
    "counts for nothing here. Make a new link (poolhouse room key) if you do not trust the server."
)


@dataclass(slots=True)
class _Knock:
    """A device that said hello and is not in yet."""

    peer: Peer
    hello: Hello
    transcript: Transcript | None = None
    host_nonce: str | None = None
    digits: str | None = None

    @property
    def name(self) -> str:
        return clean_name(self.hello.name, self.peer.link.peer_id)

    @property
    def is_api_client(self) -> bool:
        return bool(clean_meta(self.hello.meta, on_host=True).get("api"))


@dataclass(frozen=True, slots=True)
class Waiting:
    """A device in the lobby, for the person who decides."""

    peer_id: str
    name: str
    label: str
    digits: str | None
    """Six digits that its person sees too, unless someone stands between."""


class SeveralWait(Exception):
    """A name is no answer to "who?": names are claims, and several devices make this one."""

    def __init__(self, name: str, waiting: Sequence[Waiting]) -> None:
        shown = ", ".join(each.digits or "no digits" for each in waiting)
        super().__init__(
            f"{len(waiting)} devices called {name!r} are waiting; say which by its digits: {shown}."
        )
        self.waiting = tuple(waiting)


@dataclass(slots=True)
class Doorman:
    """Holds devices until the gate, or the person, lets them in.

    ``let_in`` brings a device into the room, ``refuse`` ends its link with a reason, ``save`` is
    called when passes changed.
    """

    gate: Gate
    my_id: Callable[[], str]
    send: Callable[[Peer, Message], None]
    let_in: Callable[[Peer, Hello], None]
    refuse: Callable[[Peer, str], None]
    notify: Notify
    save: Callable[[], None]
    denies_unknown: bool = False
    """Refuse whoever proves nothing instead of asking the person."""
    _knocks: dict[str, _Knock] = field(default_factory=dict)

    def hello(self, peer: Peer, hello: Hello) -> None:
        """The first hello on a held link."""
        self.gone(peer.link.peer_id)  # a newer link is another request: what was seen is old
        knock = self._knocks[peer.link.peer_id] = _Knock(peer, hello)
        refusal = self.gate.refusal_of_api(peer.link.peer_id) if knock.is_api_client else None
        if refusal is not None:
            self._refuse(knock, Decision("refuse", reason=refusal))
            return
        knock.host_nonce = self.gate.challenge(hello)
        if knock.host_nonce is not None:
            self.send(peer, Auth(v=1, hn=knock.host_nonce))
            asyncio.get_running_loop().call_later(PROOF_S, self._waited, knock)
        else:
            self._decided(knock, self.gate.on_hello(peer.link.peer_id, hello))

    def proof(self, peer: Peer, proof: AuthProof) -> None:
        """The answer to a challenge, taken once."""
        knock = self._knocks.get(peer.link.peer_id)
        if knock is None or knock.host_nonce is None or knock.transcript is not None:
            return
        knock.transcript = Transcript(
            binding=peer.link.binding(),
            joiner_id=peer.link.peer_id,
            host_id=self.my_id(),
            joiner_nonce=proof.jn,
            host_nonce=knock.host_nonce,
        )
        self._decided(knock, self.gate.on_proof(knock.hello, proof, knock.transcript))

    def waiting(self) -> list[Waiting]:
        """Who is in the lobby, in the order of arrival."""
        return [self._waiting(knock) for knock in self._in_lobby()]

    def allow(self, who: str) -> Waiting | None:
        """Let in the device with this name or these digits; ``None`` when it does not wait.

        Raises :class:`SeveralWait`.
        """
        knock = self._meant(who)
        if knock is None:
            return None
        self._admit(knock, self.gate.allow(knock.peer.link.peer_id))
        return self._waiting(knock)

    def deny(self, who: str) -> Waiting | None:
        """Refuse the device with this name or these digits; otherwise as :meth:`allow`."""
        knock = self._meant(who)
        if knock is None:
            return None
        self._refuse(knock, self.gate.deny(knock.peer.link.peer_id))
        return self._waiting(knock)

    def gone(self, peer_id: str) -> bool:
        """A link closed; True when its device was not in yet."""
        knock = self._knocks.pop(peer_id, None)
        if knock is not None and self.gate.withdraw(peer_id):
            self.notify(DeviceWithdrew(knock.name))
        return knock is not None

    # ---- inside --------------------------------------------------------------------------------

    def _waited(self, knock: _Knock) -> None:
        """It said hello and nothing more: its link takes one of few places."""
        if self._knocks.get(knock.peer.link.peer_id) is knock and knock.transcript is None:
            self._refuse(knock, Decision("refuse", reason="unverified"))

    def _decided(self, knock: _Knock, decision: Decision) -> None:
        knock.digits = decision.digits
        if decision.announced_in_vain:
            self.notify(Notice(f"{knock.name} came with a link or pass that did not check out."))
        if decision.showed_raw_secret:
            was_taken = decision.via in ("key", "pass")
            self.notify(Notice(f"{knock.name} {OLDER_IN if was_taken else OLDER_HELD}"))
        match decision.kind:
            case "admit":
                self._admit(knock, decision)
            case "refuse":
                self._refuse(knock, decision)
            case "ask" if self.denies_unknown:
                self._end(knock, REFUSALS["denied"])
            case "ask":
                self.gate.wait(knock.peer.link.peer_id, knock.name)
                self.send(knock.peer, Lobby())
                waiting = self._waiting(knock)
                self.notify(DeviceWaits(waiting.name, waiting.label, waiting.digits))

    def _admit(self, knock: _Knock, decision: Decision) -> None:
        del self._knocks[knock.peer.link.peer_id]
        message = self.gate.admit_message(
            decision, knock.transcript, knock.name, is_api=knock.is_api_client
        )
        if message.pass_ is not None:
            self.save()
        self.send(knock.peer, message)
        self.let_in(knock.peer, knock.hello)

    def _refuse(self, knock: _Knock, decision: Decision) -> None:
        self._end(knock, REFUSALS[decision.reason or "denied"])

    def _end(self, knock: _Knock, reason: str) -> None:
        self._knocks.pop(knock.peer.link.peer_id, None)
        self.refuse(knock.peer, reason)

    def _meant(self, who: str) -> _Knock | None:
        """By the six digits, spaced or not, which nobody can choose; else by name."""
        plain, lobby = who.replace(" ", ""), self._in_lobby()
        found = [knock for knock in lobby if (knock.digits or "").replace(" ", "") == plain != ""]
        found = found or [knock for knock in lobby if knock.name.replace(" ", "") == plain]
        if len(found) > 1:
            raise SeveralWait(who, [self._waiting(knock) for knock in found])
        return found[0] if found else None

    def _in_lobby(self) -> list[_Knock]:
        """A request goes with its link, also when another link took that one's place."""
        knocks = (self._knocks.get(peer_id) for peer_id in self.gate.waiting)
        return [knock for knock in knocks if knock is not None and knock.peer.link.is_open]

    def _waiting(self, knock: _Knock) -> Waiting:
        meta = clean_meta(knock.hello.meta, on_host=True)
        return Waiting(knock.peer.link.peer_id, knock.name, device_label(meta), knock.digits)
