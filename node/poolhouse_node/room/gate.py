"""Who gets into a room: the host's decisions (joining, sections 3 and 8).

Every device that the host did not dial is held until this says ``admit``. The order of checks is
the page's: a pass or key that was proved on this link, an open room, then the lobby.
"""

from __future__ import annotations

import hmac
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from poolhouse_node.room.proofs import (
    Transcript,
    commitment,
    is_hex_digest,
    is_mesh_key,
    is_nonce,
    make_mesh_key,
    make_secret,
    pass_hash,
    pass_id,
    speaks_proofs,
)
from poolhouse_node.wire.messages.joining import Admit

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from poolhouse_node.room.proofs import Credential
    from poolhouse_node.wire.messages.joining import AuthProof, Hello

__all__ = ["REFUSALS", "Decision", "Gate", "GateState", "RefusalReason"]

type RefusalReason = Literal["too-old", "denied", "full", "unverified", "no-api", "sent-out"]

WAITING_MAX = 8
PASSES_MAX = 500

REFUSALS: Mapping[RefusalReason, str] = {
    "too-old": "This room asks its host before it lets a device in, and this device is too old to "
    "wait. Reload or update it, then join again.",
    "denied": "The host did not let this device in.",
    "full": "Too many devices are waiting to be let in. Try again in a minute.",
    "unverified": "This device could not show on this link that it may join. Join again.",
    "no-api": "This room takes no API clients; its host can allow them.",
    "sent-out": "The host of this room ended the link of this API client.",
}
"""What the refused device's person reads."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What to do with a held device."""

    kind: Literal["admit", "ask", "refuse"]
    via: Literal["key", "pass", "open"] | None = None
    gives_pass: bool = False
    announced_in_vain: bool = False
    """It said it would prove a key or pass, and neither checked: tell the host's person."""
    digits: str | None = None
    reason: RefusalReason | None = None
    showed_raw_secret: bool = False
    """An older device sent the secret itself; the host's person is warned."""
    secret: str | None = field(default=None, repr=False)
    """What the device proved, to prove it back: the invite key or the hash of its pass."""


@dataclass(frozen=True, slots=True)
class GateState:
    """What survives a restart of the host (joining, section 3). Passes are kept as hashes."""

    asks: bool
    key: str = field(repr=False)
    mesh_key: str = field(repr=False)
    passes: dict[str, str] = field(repr=False)
    """Pass hash to the name of the device it was given to, oldest first."""


@dataclass(slots=True)
class Gate:
    """The gate of one room. ``draw`` gives random bytes."""

    draw: Callable[[int], bytes]
    asks: bool = True
    """Ask the person before letting in a device that proved nothing."""
    takes_raw_secrets: bool = False
    """Take the secrets themselves from devices of before the proofs."""
    key: str = field(default="", repr=False)
    mesh_key: str = field(default="", repr=False)
    passes: dict[str, str] = field(default_factory=dict, repr=False)
    takes_api_clients: bool = True
    denied: set[str] = field(default_factory=set)
    sent_out: set[str] = field(default_factory=set)
    """Peer ids of API clients whose links the person ended: they come back by themselves."""
    waiting: dict[str, str] = field(default_factory=dict)
    """Peer id to name of those in the lobby."""

    def __post_init__(self) -> None:
        self.key = self.key if is_nonce(self.key) else make_secret(self.draw)
        self.mesh_key = self.mesh_key if is_mesh_key(self.mesh_key) else make_mesh_key(self.draw)

    # ---- deciding ------------------------------------------------------------------------------

    def refusal_of_api(self, peer_id: str) -> RefusalReason | None:
        """Why an API client is refused, whatever it could prove; ``None`` when it is not."""
        if not self.takes_api_clients:
            return "no-api"
        return "sent-out" if peer_id in self.sent_out else None

    def challenge(self, hello: Hello) -> str | None:
        """The nonce to send to a device that speaks the proofs; ``None`` for one that does not."""
        return make_secret(self.draw) if speaks_proofs(hello.auth, hello.jc) else None

    def on_proof(self, hello: Hello, proof: AuthProof | None, transcript: Transcript) -> Decision:
        """Decide on the answer to a challenge; ``transcript`` holds its ``jn``.

        ``proof`` is ``None`` when the answer could not be read.
        """
        if proof is None or not is_nonce(proof.jn) or commitment(proof.jn) != hello.jc:
            return Decision("refuse", reason="unverified")
        proved = self._proved(hello, proof, transcript)
        if proved is not None:
            via, secret = proved
            return Decision(
                "admit",
                via=via,
                gives_pass=via == "key",
                digits=transcript.digits,
                secret=secret,
            )
        announced = _announces_key(hello) or hello.pid is not None
        return self._unproved(
            transcript.joiner_id, hello, digits=transcript.digits, announced=announced
        )

    def on_hello(self, peer_id: str, hello: Hello) -> Decision:
        """Decide on a device of before the proofs (section 8)."""
        if speaks_proofs(hello.auth, hello.jc):  # a raw secret beside proofs is never read
            return self._unproved(peer_id, hello)
        if self.takes_raw_secrets:
            return self._raw(hello) or self._unproved(peer_id, hello)
        shows = hello.key is not None or hello.pass_ is not None
        return replace(self._unproved(peer_id, hello), showed_raw_secret=shows)

    def _raw(self, hello: Hello) -> Decision | None:
        come_back_pass, key = hello.pass_, hello.key
        if is_nonce(come_back_pass) and pass_hash(str(come_back_pass)) in self.passes:
            return Decision("admit", via="pass", showed_raw_secret=True)
        if is_nonce(key) and hmac.compare_digest(str(key), self.key):
            return Decision("admit", via="key", gives_pass=True, showed_raw_secret=True)
        return None

    def _proved(
        self, hello: Hello, proof: AuthProof, transcript: Transcript
    ) -> tuple[Credential, str] | None:
        hashed = self._pass_named(hello.pid)
        if hashed is not None and transcript.checks("join", "pass", hashed, proof.pp):
            return "pass", hashed
        if _announces_key(hello) and transcript.checks("join", "key", self.key, proof.kp):
            return "key", self.key
        return None

    def _pass_named(self, wanted_id: str | None) -> str | None:
        return next((hashed for hashed in self.passes if pass_id(hashed) == wanted_id), None)

    def _unproved(
        self, peer_id: str, hello: Hello, *, digits: str | None = None, announced: bool = False
    ) -> Decision:
        if not self.asks:
            return Decision(
                "admit",
                via="open",
                gives_pass=bool(hello.join),
                announced_in_vain=announced,
                digits=digits,
            )
        reason = self._no_place(peer_id, hello)
        if reason is not None:
            return Decision("refuse", reason=reason, announced_in_vain=announced)
        return Decision("ask", announced_in_vain=announced, digits=digits)

    def _no_place(self, peer_id: str, hello: Hello) -> RefusalReason | None:
        if not hello.join:
            return "too-old"
        if peer_id in self.denied:
            return "denied"
        if len(self.waiting) >= WAITING_MAX and peer_id not in self.waiting:
            return "full"
        return None

    # ---- the lobby -----------------------------------------------------------------------------

    def wait(self, peer_id: str, name: str) -> None:
        """The decision was ``ask``: the device is in the lobby."""
        self.waiting[peer_id] = name

    def allow(self, peer_id: str) -> Decision:
        """The person lets a waiting device in."""
        self.waiting.pop(peer_id, None)
        return Decision("admit", via="open", gives_pass=True)

    def deny(self, peer_id: str) -> Decision:
        """The person does not; remembered as long as the host runs."""
        self.waiting.pop(peer_id, None)
        self.denied.add(peer_id)
        return Decision("refuse", reason="denied")

    def withdraw(self, peer_id: str) -> bool:
        """A waiting device closed its link; False when it was not in the lobby."""
        return self.waiting.pop(peer_id, None) is not None

    # ---- letting in ----------------------------------------------------------------------------

    def admit_message(
        self, decision: Decision, transcript: Transcript | None, name: str, *, is_api: bool = False
    ) -> Admit:
        """``admit``: a pass to come back with, the host's proof back, the room's mesh key.

        An API client gets no mesh key: it has no links but the one to the host.
        """
        via: Credential | None = None
        proof_back: str | None = None
        if decision.secret is not None and transcript is not None:
            via = "pass" if decision.via == "pass" else "key"
            proof_back = transcript.prove("host", via, decision.secret)
        return Admit(
            pass_=self._new_pass(name) if decision.gives_pass else None,
            via=via,
            hp=proof_back,
            mk=None if is_api else self.mesh_key,
        )

    def _new_pass(self, name: str) -> str:
        new = make_secret(self.draw)
        self.passes[pass_hash(new)] = name
        while len(self.passes) > PASSES_MAX:
            del self.passes[next(iter(self.passes))]
        return new

    # ---- keeping -------------------------------------------------------------------------------

    def renew_key(self) -> str:
        """A new invite key: links that carry the old one are dead."""
        self.key = make_secret(self.draw)
        return self.key

    def revoke(self, names: Collection[str]) -> None:
        """Passes that were given to devices of these names count no more."""
        self.passes = {hashed: name for hashed, name in self.passes.items() if name not in names}

    def state(self) -> GateState:
        """What to keep with the room. Lobby and denied devices are not kept."""
        return GateState(self.asks, self.key, self.mesh_key, dict(self.passes))

    @classmethod
    def restore(cls, draw: Callable[[int], bytes], saved: Mapping[str, object]) -> Gate:
        """From a saved state. What is not valid in it is left out; keys are made anew."""
        passes = saved.get("passes")
        kept = passes.items() if isinstance(passes, dict) else ()
        return cls(
            draw,
            asks=saved.get("asks") is not False,
            key=str(saved.get("key") or ""),
            mesh_key=str(saved.get("mesh_key") or ""),
            passes={hashed: str(name) for hashed, name in kept if is_hex_digest(hashed)},
        )


def _announces_key(hello: Hello) -> bool:
    """``kc`` is the number 1; true is not an announcement."""
    return type(hello.kc) is int and hello.kc == 1
