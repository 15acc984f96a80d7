"""Names of devices that fit into the protocol without losing what tells them apart."""

from __future__ import annotations

import hashlib

__all__ = ["NAME_CHARACTERS", "fit_name"]

NAME_CHARACTERS = 40
"""What a host keeps of a name (joining, section 7)."""
_DIGEST_CHARACTERS = 10
_KEPT_CHARACTERS = NAME_CHARACTERS - _DIGEST_CHARACTERS - 1


def fit_name(name: str) -> str:
    """``name``, or its beginning and a digest of all of it when it is too long.

    A host cuts at the end, where the names of pods differ, and a seat is kept by name. The same
    name always gives the same one.
    """
    if len(name) <= NAME_CHARACTERS:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{name[:_KEPT_CHARACTERS]}-{digest[:_DIGEST_CHARACTERS]}"
