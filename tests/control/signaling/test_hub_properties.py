"""Any interleaving of connects, messages, ends and time keeps what clients rely on."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from poolhouse_control.signaling.commands import SocketId
from poolhouse_control.signaling.limits import Limits
from tests.support.exchange import Exchange

ids = st.sampled_from(["A", "B", "C", "D"])
tokens = st.sampled_from(["one", "two"])
kinds = st.sampled_from(["OFFER", "ANSWER", "CANDIDATE"])


class Signaling(RuleBasedStateMachine):
    """A model of who owns what, beside the hub."""

    def __init__(self) -> None:
        super().__init__()
        self.x = Exchange(
            Limits(alive_timeout_s=60, max_queued_per_peer=4, max_queued_per_sender=6)
        )
        self.owner: dict[str, tuple[int, str]] = {}
        self.sockets: list[int] = []
        self.sent = 0
        self.last_seen: dict[tuple[str, str], int] = defaultdict(int)

    @rule(peer_id=ids, token=tokens)
    def connect(self, peer_id: str, token: str) -> None:
        former = self._owner(peer_id)
        socket = self.x.connect(peer_id, token)
        self.sockets.append(socket)
        first = self.x.inbox[socket][0]
        if former is None or former[1] == token:
            assert first == {"type": "OPEN"}
            self.owner[peer_id] = (socket, token)
            if former is not None:
                assert former[0] in self.x.codes
        else:
            assert first["type"] == "ID-TAKEN"
            assert former[0] not in self.x.codes

    @rule(data=st.data(), dst=ids, kind=kinds)
    def message(self, data: st.DataObject, dst: str, kind: str) -> None:
        if not self.sockets:
            return
        socket = data.draw(st.sampled_from(self.sockets))
        self.sent += 1
        self.x.say(socket, {"type": kind, "dst": dst, "src": "liar", "payload": self.sent})

    @rule(data=st.data(), frame=st.binary(max_size=30) | st.sampled_from(["{}", "[]", "null"]))
    def noise(self, data: st.DataObject, frame: Any) -> None:
        if self.sockets:
            self.x.say(data.draw(st.sampled_from(self.sockets)), frame)

    @rule(data=st.data())
    def sign_off(self, data: st.DataObject) -> None:
        if self.sockets:
            self.x.say(data.draw(st.sampled_from(self.sockets)), {"type": "LEAVE"})

    @rule(data=st.data())
    def hang_up(self, data: st.DataObject) -> None:
        if self.sockets:
            socket = data.draw(st.sampled_from(self.sockets))
            self.sockets.remove(socket)
            self.x.hang_up(socket)
            self.owner = {k: v for k, v in self.owner.items() if v[0] != socket}

    @rule(seconds=st.sampled_from([0.1, 1.0, 5.0, 61.0]))
    def wait(self, seconds: float) -> None:
        self.x.advance(seconds)

    def _owner(self, peer_id: str) -> tuple[int, str] | None:
        """The model's owner, unless the hub cut it (silence, noise, sign-off)."""
        found = self.owner.get(peer_id)
        return None if found is None or found[0] in self.x.codes else found

    @invariant()
    def one_owner_an_id(self) -> None:
        modelled = {peer_id for peer_id in "ABCD" if self._owner(peer_id)}
        assert set(self.x.hub.peer_ids()) == modelled
        for peer_id in modelled:
            assert self.x.hub.is_registered(SocketId(self._owner(peer_id)[0]))  # type: ignore[index]
        open_owners = [s for s in self.sockets if self.x.hub.is_registered(SocketId(s))]
        assert len(open_owners) == len(modelled)

    @invariant()
    def hub_and_store_agree(self) -> None:
        owned = self.x.hub.owned()
        assert self.x.presence._owners.keys() == {peer_id for peer_id, _ in owned}
        assert all(self.x.presence._owns(*pair) for pair in owned)
        waits = self.x.hub._waits
        assert self.x.hub.waiting_count == self.x.presence.queued
        assert sum(len(wait.senders) for wait in waits._waits.values()) == waits.count
        assert sum(waits._of_sender.values()) == waits.count

    @invariant()
    def order_of_each_pair_is_kept_and_src_is_true(self) -> None:
        for socket in list(self.x.inbox):
            for message in self.x.heard(socket):
                if "payload" not in message or message["type"] in ("ERROR", "ID-TAKEN"):
                    continue
                assert message["src"] in "ABCD"
                pair = (message["src"], message["dst"])
                assert message["payload"] > self.last_seen[pair]
                self.last_seen[pair] = message["payload"]

    def teardown(self) -> None:
        """In the end nothing waits and nobody is left."""
        self.x.advance(5.0)
        assert self.x.presence.queued == 0
        self.x.advance(60.0)
        self.x.advance(5.0)
        assert self.x.hub.peer_count == 0
        assert not self.x.presence._owners
        assert not self.x.hub._waits._waits
        assert not self.x.hub._waits._due
        assert not self.x.hub._waits._of_sender
        assert not len(self.x.hub._claims)


TestSignaling = Signaling.TestCase
TestSignaling.settings = settings(max_examples=120, stateful_step_count=40, deadline=None)


def test_no_socket_goes_deaf_under_noise() -> None:
    """As long as a socket is not told to close, what it says arrives."""
    x = Exchange()
    a, b = x.connect("A"), x.connect("B")
    noise = ["null", "{}", "[", '{"type":"OFFER"}', '{"type":"OFFER","dst":{}}', "\x00"]
    for number, frame in enumerate(noise):
        x.say(a, frame)
        if a in x.codes:
            break
        x.offer(a, "B", number)
        assert json.loads(x.texts[b][-1])["payload"] == number
