"""Secrets of a room and the proofs that stand for them on a link (joining, sections 1 and 5).

A secret never crosses a link. What crosses is an HMAC over who speaks, to whom, over which
association (its two certificate fingerprints, the *binding*) and two fresh nonces, so that a proof
is worth nothing on any other link. HMAC keys are the texts of the secrets, not decoded bytes.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = [
    "Credential",
    "Role",
    "Transcript",
    "commitment",
    "is_hex_digest",
    "is_mesh_key",
    "is_nonce",
    "is_pass_id",
    "make_mesh_key",
    "make_secret",
    "mesh_proof",
    "pass_hash",
    "pass_id",
    "six_digits",
    "speaks_proofs",
]

type Credential = Literal["key", "pass"]
type Role = Literal["join", "host"]
type MeshRole = Literal["dial", "accept"]

_AUTH, _MESH = "pooled-auth-v1", "pooled-mesh-v1"
_COMMIT, _PASS_ID, _DIGITS = "pooled-commit-v1\n", "pooled-pass-id-v1\n", "pooled-sas-v1\n"

_NONCE = re.compile(r"[A-Za-z0-9_-]{22,64}")
_MESH_KEY = re.compile(r"[A-Za-z0-9_-]{43}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_PASS_ID_TEXT = re.compile(r"[0-9a-f]{32}")


def make_secret(draw: Callable[[int], bytes]) -> str:
    """A new invite key, pass or nonce: 16 random bytes as 22 characters of base64url."""
    return _base64url(draw(16))


def make_mesh_key(draw: Callable[[int], bytes]) -> str:
    """A new mesh key: 32 random bytes as 43 characters."""
    return _base64url(draw(32))


def _base64url(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def is_nonce(value: object) -> bool:
    """Also the form of invite keys and passes."""
    return isinstance(value, str) and _NONCE.fullmatch(value) is not None


def is_mesh_key(value: object) -> bool:
    """43 characters of base64url."""
    return isinstance(value, str) and _MESH_KEY.fullmatch(value) is not None


def is_hex_digest(value: object) -> bool:
    """A proof, commitment or pass hash: 64 lower-case hex digits."""
    return isinstance(value, str) and _DIGEST.fullmatch(value) is not None


def is_pass_id(value: object) -> bool:
    """32 lower-case hex digits."""
    return isinstance(value, str) and _PASS_ID_TEXT.fullmatch(value) is not None


def speaks_proofs(auth: object, commitment_hex: object) -> bool:
    """Does a hello with these ``auth`` and ``jc`` come from a device that proves its links?"""
    return isinstance(auth, int) and auth >= 1 and is_hex_digest(commitment_hex)


def commitment(nonce: str) -> str:
    """What a joiner's hello says of its nonce before the host has shown its own."""
    return _sha256(_COMMIT + nonce)


def pass_hash(come_back_pass: str) -> str:
    """What a host keeps of a pass, and the secret that proofs of it are made with."""
    return _sha256(come_back_pass)


def pass_id(hashed: str) -> str:
    """Names a pass hash without giving it away."""
    return _sha256(_PASS_ID + hashed)[:32]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Transcript:
    """What a proof says, both ways: the two ends of one link and their nonces."""

    binding: str
    """Of the association, as this end sees it; empty when an end shows no fingerprint."""
    joiner_id: str
    host_id: str
    joiner_nonce: str
    host_nonce: str

    def text(self, role: Role, credential: Credential) -> str:
        """The seven lines that are signed."""
        return "\n".join(
            (
                _AUTH,
                f"role={role}",
                f"cred={credential}",
                f"fp={self.binding}",
                f"ids={self.joiner_id},{self.host_id}",
                f"jn={self.joiner_nonce}",
                f"hn={self.host_nonce}",
            )
        )

    def prove(self, role: Role, credential: Credential, secret: str) -> str:
        """The proof of ``secret``: an invite key, or the hash of a pass."""
        return _hmac(secret, self.text(role, credential))

    def checks(self, role: Role, credential: Credential, secret: str, proof: object) -> bool:
        """Is ``proof`` that of ``secret`` by the end with ``role``? In constant time.

        Nothing checks on a link without a binding: such a proof would hold on any other.
        """
        if not self.binding or not isinstance(proof, str) or not is_hex_digest(proof):
            return False
        return hmac.compare_digest(self.prove(role, credential, secret), proof)

    @property
    def digits(self) -> str | None:
        """The six digits both persons can compare, as ``ddd ddd``; ``None`` without a binding."""
        return six_digits(self.binding, self.joiner_nonce, self.host_nonce)


def six_digits(binding: str, joiner_nonce: object, host_nonce: object) -> str | None:
    """Short digest of the link; equal at both ends unless someone stands between them."""
    if not binding or not is_nonce(joiner_nonce) or not is_nonce(host_nonce):
        return None
    digest = _sha256(f"{_DIGITS}{binding}\n{joiner_nonce}\n{host_nonce}")
    number = f"{int(digest[:8], 16) % 1_000_000:06}"
    return f"{number[:3]} {number[3:]}"


def mesh_proof(
    mesh_key: str | None, role: MeshRole, binding: str, dialer_id: str, acceptor_id: str
) -> str | None:
    """Proof of the room's mesh key by the end with ``role`` (joining, section 6).

    ``None`` without a key or a binding: then the end says ``none``.
    """
    if not mesh_key or not binding:
        return None
    lines = (_MESH, f"role={role}", f"fp={binding}", f"ids={dialer_id},{acceptor_id}")
    return _hmac(mesh_key, "\n".join(lines))


def _hmac(secret: str, text: str) -> str:
    return hmac.new(secret.encode(), text.encode(), hashlib.sha256).hexdigest()
