"""The text that binds a proof to one association (joining, section 5)."""

from __future__ import annotations

import re

__all__ = ["binding_of", "fingerprint_of"]

_LOOKS_LIKE_ONE = re.compile(r"^\s*a=fingerprint", re.IGNORECASE)
_FINGERPRINT = re.compile(r"a=fingerprint: *([A-Za-z0-9-]+) +([0-9A-Fa-f:]+) *")


def fingerprint_of(sdp: str | None) -> str | None:
    """The one certificate fingerprint a description shows, as ``sha-256 ab:cd..``.

    None when it shows none, several that differ, or one that does not parse: such an end
    binds nothing.
    """
    values = set[str]()
    for line in re.split(r"\r\n|\n|\r", sdp or ""):
        if not _LOOKS_LIKE_ONE.match(line):
            continue
        found = _FINGERPRINT.fullmatch(line)
        if found is None:
            return None
        values.add(f"{found[1]} {found[2]}".lower())
    return values.pop() if len(values) == 1 else None


def binding_of(local_sdp: str | None, remote_sdp: str | None) -> str:
    """The same text at both ends of an association, or empty when either end binds nothing."""
    ends = {fingerprint_of(local_sdp), fingerprint_of(remote_sdp)}
    return "" if None in ends else ",".join(sorted(end for end in ends if end))
