"""coturn's shared-secret credentials (relay credentials, 2).

coturn checks them with nothing but the secret: the user name says until when it is good, the
password is its keyed hash.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Final

import msgspec

__all__ = ["DEFAULT_LABEL", "Credentials", "device_label", "issue"]

DEFAULT_LABEL: Final = "pooled"

_LABEL_HEX_CHARS: Final = 16


class Credentials(msgspec.Struct, frozen=True, kw_only=True):
    """One user name and password, and when they end."""

    username: str
    credential: str
    expires_at_s: int
    """Unix time."""

    def __repr__(self) -> str:
        """Leave the password out."""
        return f"Credentials(username={self.username!r})"


def issue(secret: str, *, ttl_s: int, now_s: float, label: str = DEFAULT_LABEL) -> Credentials:
    """Make credentials good for ``ttl_s`` seconds from the whole second of ``now_s``."""
    expires_at_s = int(now_s) + ttl_s
    username = f"{expires_at_s}:{label}"
    # SHA-1 is what coturn computes; a keyed hash does not need collision resistance.
    digest = hmac.digest(secret.encode(), username.encode(), hashlib.sha1)
    credential = base64.b64encode(digest).decode()
    return Credentials(username=username, credential=credential, expires_at_s=expires_at_s)


def device_label(secret: str, device: str) -> str:
    """Name a device in coturn's quotas and logs without telling its name (decision 17)."""
    digest = hmac.digest(secret.encode(), b"label:" + device.encode("utf-8", "replace"), "sha256")
    return digest.hex()[:_LABEL_HEX_CHARS]
