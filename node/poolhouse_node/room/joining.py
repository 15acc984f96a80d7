"""How a device proves itself to a host, and checks that the host is the right one (joining, 4)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from poolhouse_node.room.proofs import (
    Transcript,
    commitment,
    is_nonce,
    make_secret,
    pass_hash,
    pass_id,
)
from poolhouse_node.wire.messages.joining import AuthProof

if TYPE_CHECKING:
    from collections.abc import Callable

    from poolhouse_node.wire.messages.joining import Admit, Auth

__all__ = ["Joiner", "Verdict"]

type Verdict = Literal["verified", "unverified", "nothing-proved", "wrong"]
"""``verified``: the host proved the secret back. ``unverified``: it let us in and proved nothing
(``tofu`` in the vectors). ``nothing-proved``: we had nothing to prove. ``wrong``: leave."""


@dataclass(slots=True)
class Joiner:
    """One attempt to join: a nonce, what this device holds, what the host answered."""

    draw: Callable[[int], bytes]
    my_id: str
    host_id: str
    key: str = field(default="", repr=False)
    come_back_pass: str = field(default="", repr=False)
    nonce: str = ""
    _transcript: Transcript | None = None

    def __post_init__(self) -> None:
        self.nonce = self.nonce or make_secret(self.draw)

    @property
    def holds_something(self) -> bool:
        """It has an invite key or a pass to prove."""
        return bool(self.key or self.come_back_pass)

    @property
    def digits(self) -> str | None:
        """The six digits, once the host has sent its nonce."""
        return self._transcript.digits if self._transcript else None

    def hello_fields(self) -> dict[str, object]:
        """What the hello says of proofs: the commitment, and which secrets will be proved."""
        fields: dict[str, object] = {"auth": 1, "jc": commitment(self.nonce)}
        if self.key:
            fields["kc"] = 1
        if self.come_back_pass:
            fields["pid"] = pass_id(pass_hash(self.come_back_pass))
        return fields

    def answer(self, challenge: Auth, binding: str) -> AuthProof | None:
        """The answer to the host's nonce, once; ``None`` for a second or an unusable challenge."""
        if self._transcript is not None or not is_nonce(challenge.hn):
            return None
        self._transcript = transcript = Transcript(
            binding, self.my_id, self.host_id, self.nonce, challenge.hn
        )
        return AuthProof(
            jn=self.nonce,
            kp=transcript.prove("join", "key", self.key) if self.key else None,
            pp=self._prove_pass(transcript),
        )

    def _prove_pass(self, transcript: Transcript) -> str | None:
        if not self.come_back_pass:
            return None
        return transcript.prove("join", "pass", pass_hash(self.come_back_pass))

    def judge(self, admit: Admit) -> Verdict:
        """What the host's ``admit`` is worth (section 4; decision 3 says what to do about it)."""
        if not self.holds_something:
            return "nothing-proved"
        if admit.via not in ("key", "pass"):
            return "unverified"
        secret = self.key if admit.via == "key" else self.come_back_pass
        if not secret or self._transcript is None:
            return "wrong"
        if admit.via == "pass":
            secret = pass_hash(secret)
        credential: Literal["key", "pass"] = "key" if admit.via == "key" else "pass"
        proved = self._transcript.checks("host", credential, secret, admit.hp)
        return "verified" if proved else "wrong"
