"""The joining device's side of the gate: prove, wait, check the host (joining, section 4)."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from poolhouse_node.device.events import LobbyEntered, Notice
from poolhouse_node.room.proofs import is_mesh_key, is_nonce

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.device.device import Peer
    from poolhouse_node.device.events import Notify
    from poolhouse_node.room.joining import Joiner
    from poolhouse_node.wire.messages import Message
    from poolhouse_node.wire.messages.joining import Admit, Auth, Hello

__all__ = ["Entrance", "Secrets"]

HOST_HELLO_WAIT_S = 2.0
"""A device that holds a secret learns first whether the host takes proofs."""

UNVERIFIED = (
    "The host let this device in but did not prove that it knows the room's secret, so it may not "
    "be the host you think it is. Ask its person whether the host was restarted without its "
    "passes; --trust-unverified goes in all the same."
)
SOMEONE_BETWEEN = (
    "The host's proof is wrong: someone may stand between this device and the host. Nothing was "
    "given away. Do not join over this signaling server."
)


@dataclass(slots=True)
class Secrets:
    """What this device holds of one room. ``changed`` is called when the host gave a pass."""

    key: str = field(default="", repr=False)
    come_back_pass: str = field(default="", repr=False)
    changed: Callable[[str], None] = field(default=lambda new_pass: None, repr=False)


@dataclass(slots=True)
class Entrance:
    """One way through one host's gate.

    ``say_hello`` sends this device's hello with the given fields, ``go_in`` enters the room with
    the mesh key, ``leave`` gives up with a sentence.
    """

    joiner: Joiner
    secrets: Secrets
    trust_unverified: bool
    send: Callable[[Peer, Message], None]
    say_hello: Callable[[Peer, dict[str, object]], None]
    go_in: Callable[[Peer, str], None]
    leave: Callable[[str], None]
    notify: Notify
    waits_in_lobby: bool = False
    _said_hello: bool = False
    _timer: asyncio.TimerHandle | None = None

    def opened(self, peer: Peer) -> None:
        """The link to the host stands: say hello, now or when the host has."""
        if not self.joiner.holds_something:
            self._hello(peer, self.joiner.hello_fields())
            return
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(HOST_HELLO_WAIT_S, self._host_is_silent, peer)

    def host_hello(self, peer: Peer, hello: Hello) -> None:
        """The host's hello says whether it has a gate and takes proofs."""
        self.close()  # a device that leaves now says no hello later
        takes_proofs = bool(hello.gate) and (hello.auth or 0) >= 1
        if not takes_proofs and self.joiner.holds_something:
            if not self._accepts_unverified():
                return
            self.notify(Notice("This host is from before the proofs: it could not be verified."))
            # Its hello must not announce what will not be asked for; the secret is never sent.
            fields = self.joiner.hello_fields()
            self._hello(peer, {"auth": fields["auth"], "jc": fields["jc"]})
        else:
            self._hello(peer, self.joiner.hello_fields())
        if not hello.gate:
            self.go_in(peer, "")

    def challenged(self, peer: Peer, challenge: Auth) -> None:
        """The host's nonce: answer once."""
        answer = self.joiner.answer(challenge, peer.link.binding())
        if answer is not None:
            self.send(peer, answer)

    def in_lobby(self) -> None:
        """The host's person is asked."""
        self.waits_in_lobby = True
        self.notify(LobbyEntered(self.joiner.digits))

    def admitted(self, peer: Peer, admit: Admit) -> None:
        """The host lets this device in: is it the right host?"""
        match self.joiner.judge(admit):
            case "wrong":
                self.leave(SOMEONE_BETWEEN)
                return
            case "unverified" if not self._accepts_unverified():
                return
            case "unverified":
                self.notify(Notice("The host could not be verified (--trust-unverified)."))
        if is_nonce(admit.pass_):
            self.secrets.come_back_pass = str(admit.pass_)
            self.secrets.changed(self.secrets.come_back_pass)
        self.go_in(peer, str(admit.mk) if is_mesh_key(admit.mk) else "")

    def close(self) -> None:
        """Wait for the host's hello no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _accepts_unverified(self) -> bool:
        """A device that holds a secret goes in only where it was proved back (decision 3)."""
        if not self.trust_unverified:
            self.leave(UNVERIFIED)
        return self.trust_unverified

    def _host_is_silent(self, peer: Peer) -> None:
        self._hello(peer, self.joiner.hello_fields())

    def _hello(self, peer: Peer, fields: dict[str, object]) -> None:
        if not self._said_hello:
            self._said_hello = True
            self.close()
            self.say_hello(peer, fields)
