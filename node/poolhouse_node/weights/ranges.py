"""Checks on replies to HTTP range requests (dealing, section 8). Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from poolhouse_node.weights.errors import BadReply

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ["RangeReply", "check_range_reply", "exactly"]

_CONTENT_RANGE = re.compile(r"bytes (\d{1,18})-(\d{1,18})/(\d{1,18})", re.IGNORECASE)
_DIGITS = re.compile(r"\d{1,18}", re.ASCII)


@dataclass(frozen=True, slots=True)
class RangeReply:
    """A sound reply: ``length`` bytes will come, of a file of ``total``."""

    length: int
    total: int


def check_range_reply(
    lo: int,
    hi: int,
    *,
    status: int,
    content_range: str | None,
    content_length: str | None,
    expected_total: int | None = None,
) -> RangeReply:
    """Check the head of a reply to ``bytes=lo-hi`` (both inclusive).

    Raises :class:`BadReply`; the body still has to be exactly ``length`` long (:func:`exactly`).
    """
    if not 0 <= lo <= hi:
        raise BadReply("range", f"{lo}-{hi} is not a range of bytes.")
    if status != 206:
        sentence = f"The server answered {status} to a request for a part."
        raise BadReply("status", sentence, status=status)
    found = _CONTENT_RANGE.fullmatch((content_range or "").strip())
    if found is None:
        raise BadReply("range", "The server does not say which part of the file it sends.")
    start, end, total = map(int, found.groups())
    if start != lo or total <= lo or end != min(hi, total - 1):
        raise BadReply("range", "The server sends another part of the file than was asked for.")
    if expected_total is not None and total != expected_total:
        raise BadReply("range", f"The file has {total:,} bytes there, {expected_total:,} expected.")
    length = end - start + 1
    if content_length is not None and (
        not _DIGITS.fullmatch(content_length.strip()) or int(content_length) != length
    ):
        raise BadReply("length", "The server announces another length than the part has.")
    return RangeReply(length, total)


def exactly(length: int, chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Pass ``chunks`` on while they stay within ``length`` bytes.

    Raises :class:`BadReply` for a chunk that goes past it (which is not passed on) and at the end
    when bytes are missing.
    """
    got = 0
    for chunk in chunks:
        got += len(chunk)
        if got > length:
            raise BadReply("length", "The server sends more bytes than it announced.")
        yield chunk
    if got < length:
        raise BadReply("length", f"The connection ended {length - got:,} bytes early.")
