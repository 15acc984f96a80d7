"""Rules of links: why one failed, the mesh proof of a room without a key."""

from __future__ import annotations

from typing import Literal

__all__ = ["LinkFailed", "LinkFailure"]

type LinkFailure = Literal["no-such-peer", "no-path", "timeout", "signaling", "closed"]


class LinkFailed(Exception):
    """A link could not be opened. ``kind`` says why, the text is a sentence for a person."""

    def __init__(self, kind: LinkFailure, sentence: str) -> None:
        super().__init__(sentence)
        self.kind: LinkFailure = kind
