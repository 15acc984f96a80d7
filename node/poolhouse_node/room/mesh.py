"""Proofs of the room's key on links between devices and on stripes (joining, section 6)."""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from poolhouse_node.room.proofs import is_hex_digest, mesh_proof
from poolhouse_node.wire.messages.joining import Mesh

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["MESH_WAIT_S", "MeshGreeting", "MeshKey", "MeshVerdict"]

type MeshVerdict = Literal["accept", "close", "wait"]

MESH_WAIT_S: Final = 10.0


def _unlisted(peer_id: str) -> bool | None:
    """Without a roster nobody is known to prove links."""
    return None


@dataclass(slots=True)
class MeshKey:
    """The room's mesh key as this device holds it, shared by all its links and stripes."""

    key: str | None = field(default=None, repr=False)
    """``None`` until a host let this device in: whoever calls it before that waits. Empty when
    the host hands out none: such a device takes any proof. Either way it says ``none`` itself."""
    takes_older_devices: bool = False
    """Accept a device that proves nothing if the roster lists it as one of before the proofs."""
    proves: Callable[[str], bool | None] = _unlisted
    """What the roster says of a peer id: it proves its links, it does not, or not listed."""


@dataclass(slots=True)
class MeshGreeting:
    """The proof on one association, both ways.

    Send :meth:`greeting` when the association opens. Then ask :meth:`on_message` about the first
    ``mesh`` that comes, :meth:`again` when the roster changes, and :meth:`on_time` once
    :data:`MESH_WAIT_S` have passed.
    """

    mesh: MeshKey
    peer_id: str
    my_id: str
    dialed: bool
    """This side dialed the association."""
    binding: str
    accepted: bool = False
    _unproved: bool = False
    """The other end has spoken and proved nothing."""
    _early: Mesh | None = None
    """What it said before this device was in the room."""

    def greeting(self) -> Mesh:
        """The ``mesh`` message of this end."""
        proof = self._proof(mine=True)
        return Mesh(v=1, p=proof) if proof else Mesh(v=1, none=1)

    def on_message(self, message: Mesh) -> MeshVerdict:
        """Judge what the other end sent. Once accepted, further messages change nothing."""
        if self.accepted:
            return "accept"
        if self.mesh.key is None:
            self._early = self._early or message
            return "wait"
        if not self.mesh.key:
            return self._accept()
        if message.p is None:
            self._unproved = True
            return self._unproved_verdict()
        expected = self._proof(mine=False)
        proved = expected is not None and is_hex_digest(message.p)
        if proved and hmac.compare_digest(str(expected), message.p):
            return self._accept()
        return "close"

    def again(self) -> MeshVerdict:
        """The roster changed: this device is in, an end that proved nothing may be known now."""
        if self.accepted:
            return "accept"
        if self._early is not None and self.mesh.key is not None:
            early, self._early = self._early, None
            return self.on_message(early)
        if self._unproved:
            return self._unproved_verdict()
        return self._accept() if self._is_older() else "wait"

    def on_time(self) -> MeshVerdict:
        """The wait is over: who has not proved itself counts as one that proves nothing."""
        if self.accepted:
            return "accept"
        return "accept" if self._unproved_verdict() == "accept" else "close"

    def _unproved_verdict(self) -> MeshVerdict:
        if self._is_older():
            return self._accept()
        unlisted = self.mesh.proves(self.peer_id) is None
        takes = self.mesh.takes_older_devices and self.mesh.key is not None
        return "wait" if takes and unlisted else "close"

    def _is_older(self) -> bool:
        """The roster lists it as one of before the proofs, and such devices are taken."""
        takes = self.mesh.takes_older_devices and self.mesh.key is not None
        return takes and self.mesh.proves(self.peer_id) is False

    def _accept(self) -> MeshVerdict:
        self.accepted = True
        return "accept"

    def _proof(self, *, mine: bool) -> str | None:
        by_dialer = self.dialed is mine
        ids = (self.my_id, self.peer_id) if self.dialed else (self.peer_id, self.my_id)
        role: Literal["dial", "accept"] = "dial" if by_dialer else "accept"
        return mesh_proof(self.mesh.key, role, self.binding, *ids)
