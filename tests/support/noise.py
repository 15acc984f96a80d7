"""Frames and queries that no client sends: random, and mutated from those that clients do."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

__all__ = ["noisy_frame", "noisy_query"]

_SEEDS = [
    '{"type":"HEARTBEAT"}',
    '{"type":"OFFER","dst":"B","payload":{"sdp":{"type":"offer","sdp":"v=0"},"x":[1,2.5e3,null]}}',
    '{"type":"CANDIDATE","payload":{"candidate":{"sdpMid":"0"}},"dst":"A"}',
    '{"type":"LEAVE","dst":"C"}',
    '{"type":"LEAVE"}',
    '{"src":"liar","type":"ANSWER","dst":"D","payload":"\\u00fc\\ud83d\\ude00"}',
    '{"type":"EXPIRE","dst":"A"}',
    '{"type":"OPEN"}',
    "[[[[[[]]]]]]",
    "null",
]
_PIECES = [
    '"',
    "}",
    "{",
    "]",
    "[",
    ",",
    ":",
    "\\",
    "\\u0000",
    '"src":"Z",',
    "0",
    "1e999",
    "",
    "ü",
    "\x00",
]
_QUERIES = [
    b"key=peerjs&id=A&token=t&version=1.5.5",
    b"id=pooled-room-ABC&token=x&key=k",
    b"%%%&&=",
]


def noisy_frame(rng: Random) -> str | bytes:
    """One frame, text or binary."""
    shape = rng.randrange(8)
    if shape == 0:
        return rng.randbytes(rng.randrange(80))
    if shape == 1:
        return json.dumps(_value(rng, 4))
    if shape == 2:
        return '{"type":"OFFER","dst":"B","payload":' + "[" * rng.randrange(3000)
    text = _mutated(rng, rng.choice(_SEEDS))
    return text.encode("utf-8", "surrogatepass") if shape == 3 else text


def noisy_query(rng: Random) -> bytes:
    """The query of a socket's address."""
    if rng.randrange(3) == 0:
        return rng.randbytes(rng.randrange(100))
    query = bytearray(rng.choice(_QUERIES))
    for _ in range(rng.randrange(1, 6)):
        query[rng.randrange(len(query))] = rng.randrange(256)
    return bytes(query)


def _mutated(rng: Random, text: str) -> str:
    for _ in range(rng.randrange(4)):
        at = rng.randrange(len(text) + 1)
        text = text[:at] + rng.choice(_PIECES) + text[at + rng.randrange(3) :]
    return text


def _value(rng: Random, depth: int) -> object:
    """JSON with the members that matter, of types that do not fit."""
    shape = rng.randrange(7 if depth else 4)
    if shape == 0:
        return rng.choice(["OFFER", "LEAVE", "HEARTBEAT", "A", "B", "", "x" * 200])
    if shape == 1:
        return rng.choice([0, -1, 2**64, 1.5, True, None])
    if shape in (2, 3):
        return "".join(chr(rng.randrange(1, 0xD7FF)) for _ in range(rng.randrange(6)))
    if shape == 4:
        return [_value(rng, depth - 1) for _ in range(rng.randrange(4))]
    names = ["type", "dst", "src", "payload", "msg", "connectionId"]
    return {rng.choice(names): _value(rng, depth - 1) for _ in range(rng.randrange(5))}
