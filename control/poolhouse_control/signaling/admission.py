"""What a socket must say of itself to be let in (signaling, 2)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from poolhouse_control.signaling import messages
from poolhouse_control.signaling.limits import MAX_PEER_ID_CHARS
from poolhouse_control.signaling.origins import is_listed
from poolhouse_control.signaling.tally import ConnectOutcome

if TYPE_CHECKING:
    from poolhouse_control.signaling.messages import ConnectParams

__all__ = ["Objection", "objection"]


class Objection(NamedTuple):
    """Why a socket is refused: for the metrics, and for the client."""

    outcome: ConnectOutcome
    sentence: str


def objection(params: ConnectParams, *, key: str, origins: tuple[str, ...]) -> Objection | None:
    """Find the first fault, in the order of the reference server; texts are its own."""
    if not is_listed(params.origin, origins):
        return Objection(ConnectOutcome.ORIGIN, "Origin not allowed")
    if not (params.peer_id and params.token and params.key):
        sentence = "No id, token, or key supplied to websocket server"
        return Objection(ConnectOutcome.BAD_PARAMS, sentence)
    if params.key != key:
        return Objection(ConnectOutcome.BAD_KEY, "Invalid key provided")
    if not messages.is_peer_id(params.peer_id) or not messages.is_token(params.token):
        sentence = (
            "An id is letters and digits, joined by single spaces, hyphens or underscores, "
            f"at most {MAX_PEER_ID_CHARS} characters; a token is not empty and not huge"
        )
        return Objection(ConnectOutcome.BAD_PARAMS, sentence)
    return None
