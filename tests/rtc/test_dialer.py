"""Introductions: the dialer with scripted signaling and peers, then with real ones."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from poolhouse_node.room.links import LinkFailed
from poolhouse_node.rtc.dialer import DialTimes, PeerJsDialer
from poolhouse_node.rtc.peer import IceSettings, RtcError, TurnServer
from poolhouse_node.rtc.signaling_messages import Inbound
from tests.support.fake_rtc import FakeChannel, FakeNet
from tests.support.virtual_time import run_virtual

SDP = "m=application\r\na=ice-ufrag:x\r\na=fingerprint:sha-256 AA\r\n"


class ScriptedPeer:
    """An engine's association that opens when it is told to."""

    engine = "scripted"

    def __init__(self, net):
        self.state, self.ice_state = "new", "new"
        self.on_channel = self.on_state = lambda *_: None
        self.channels, self.candidates, self.closed = [], [], False
        self.remote = None
        self._net = net

    def channel(self, label, *, stream_id=None, ordered=True, max_retransmits=None):
        channel = FakeChannel(self._net, label, ordered=ordered)
        channel.other = FakeChannel(self._net, label, ordered=ordered)
        channel.is_open = False
        self.channels.append(channel)
        return channel

    def open(self):
        """Its main channel opens: of an acceptor the one that the other end announces."""
        if len(self.channels) == 2:
            self.on_channel(self.channel("dc"))
        main = self.channels[2]
        main.is_open = True
        main.on_open()

    async def offer(self):
        return SDP

    async def answer(self, sdp):
        self.remote = sdp
        return SDP

    async def accept(self, sdp):
        self.remote = sdp

    async def add_candidate(self, candidate, mid):
        self.candidates.append((candidate, mid))

    def descriptions(self):
        return SDP, self.remote

    def pair(self):
        return None

    async def close(self):
        self.closed = True


@dataclass
class ScriptedSignaling:
    """A signaling client that only notes what is sent."""

    peer_id: str = "me"
    connected: bool = True
    sent: list[tuple[str, str, Any]] = field(default_factory=list)
    on_message: Any = None
    on_state: Any = None

    def hurry(self):
        """Its server is never lost."""

    async def send(self, kind, dst, payload):
        if not self.connected:
            raise RtcError("The signaling server is not connected: no new link can be made now.")
        self.sent.append((kind, dst, json.loads(msgspec.json.encode(payload))))

    async def close(self):
        self.connected = False

    def relay(self, kind, src, **payload):
        self.on_message(Inbound(kind, src, msgspec.Raw(json.dumps(payload).encode())))


class Stage:
    """A dialer with its scripted surroundings."""

    def __init__(self, ice=None, times=None, ask_udp=None):
        self.net = FakeNet()
        self.signaling = ScriptedSignaling()
        self.peers, self.incoming = [], []
        self.dialer = PeerJsDialer(
            self.signaling,
            "scripted",
            ice or IceSettings(),
            times=times,
            peers=self._peer,
            ask_udp=ask_udp,
        )
        self.dialer.on_incoming = self.incoming.append

    def _peer(self, engine, ice):
        self.peers.append(ScriptedPeer(self.net))
        return self.peers[-1]

    def dial(self, timeout_s=60.0, label=None):
        return asyncio.ensure_future(self.dialer.connect("other", label=label, timeout_s=timeout_s))

    def answer(self, number=-1):
        offer = self.signaling.sent[number][2]
        self.signaling.relay(
            "ANSWER",
            "other",
            sdp={"type": "answer", "sdp": SDP},
            type="data",
            connectionId=offer["connectionId"],
        )

    def offer(self, src="other", **changes):
        payload = {
            "sdp": {"type": "offer", "sdp": SDP},
            "type": "data",
            "connectionId": "dc_x",
            "label": "dc_x",
            "reliable": True,
            "serialization": "binary",
        }
        self.signaling.relay("OFFER", src, **(payload | changes))


async def failure(task) -> tuple[str, float]:
    """Why a dial failed, and when."""
    with pytest.raises(LinkFailed) as failed:
        await task
    assert str(failed.value).endswith(".")
    return failed.value.kind, asyncio.get_running_loop().time()


def test_the_offer_is_that_of_a_peerjs_client():
    async def main():
        stage = Stage()
        task = stage.dial(label="stripe")
        await asyncio.sleep(0.1)
        kind, dst, offer = stage.signaling.sent[0]
        offer = dict(offer)
        assert (kind, dst) == ("OFFER", "other")
        connection_id = offer.pop("connectionId")
        assert connection_id.startswith("dc_")
        assert offer == {
            "sdp": {"type": "offer", "sdp": SDP},
            "type": "data",
            "label": "stripe",
            "reliable": True,
            "serialization": "binary",
        }
        stage.answer()
        stage.signaling.relay(
            "CANDIDATE", "other", candidate={"candidate": "c", "sdpMid": None},
            type="data", connectionId=connection_id,
        )  # fmt: skip
        await asyncio.sleep(0.1)
        assert stage.peers[0].candidates == [("c", "0")]
        stage.peers[0].open()
        connection = await task
        assert (connection.label, connection.dialed) == ("stripe", True)
        assert [c.label for c in stage.peers[0].channels] == ["swarm-wire", "swarm-ka", "stripe"]

    run_virtual(main())


def test_a_main_connection_is_labelled_with_its_id():
    async def main():
        stage = Stage()
        task = stage.dial()
        await asyncio.sleep(0.1)
        offer = stage.signaling.sent[0][2]
        assert offer["label"] == offer["connectionId"]
        task.cancel()
        await asyncio.sleep(1)
        assert stage.peers[0].closed, "a dial that is given up leaves nothing behind"

    run_virtual(main())


def test_without_an_answer_there_is_no_such_peer_after_fifteen_seconds():
    async def main():
        stage = Stage()
        kind, at = await failure(stage.dial())
        assert kind == "no-such-peer"
        assert 15 <= at <= 16.1
        await asyncio.sleep(1)
        assert stage.peers[0].closed

    run_virtual(main())


def test_expire_ends_a_dial_at_once_unless_the_peer_has_answered():
    async def main():
        stage = Stage()
        task = stage.dial()
        await asyncio.sleep(0.1)
        stage.signaling.relay("EXPIRE", "somebody else")
        await asyncio.sleep(0.1)
        stage.signaling.relay("EXPIRE", "other")
        assert (await failure(task))[0] == "no-such-peer"
        task = stage.dial()
        await asyncio.sleep(0.1)
        stage.answer()
        await asyncio.sleep(0.1)
        stage.signaling.relay("EXPIRE", "other")
        stage.peers[1].open()
        assert (await task).is_open

    run_virtual(main())


@pytest.mark.parametrize(
    ("ice", "fails_at"), [("checking", 80), ("disconnected", 30), ("connected", 30), ("failed", 2)]
)
def test_a_path_is_looked_for_and_then_once_more(ice, fails_at):
    """Relay, section 6: 15 s, up to 40 s while ICE tries; engines, pitfall 8: one redial."""

    async def main():
        stage = Stage()
        task = stage.dial(timeout_s=100)
        for number in range(2):
            while len(stage.signaling.sent) <= number:
                await asyncio.sleep(0.05)
            stage.answer(number)
            stage.peers[number].ice_state = ice
        kind, at = await failure(task)
        assert kind == "no-path"
        assert fails_at <= at <= fails_at + 3
        assert len(stage.peers) == 2

    run_virtual(main())


def test_the_second_try_may_succeed():
    async def main():
        stage = Stage()
        task = stage.dial()
        await asyncio.sleep(0.1)
        stage.answer()
        stage.peers[0].ice_state = "failed"
        while len(stage.signaling.sent) < 2:
            await asyncio.sleep(0.1)
        stage.peers[0].open()
        stage.answer()
        await asyncio.sleep(0.1)
        stage.peers[1].open()
        assert (await task).connection_id == stage.signaling.sent[1][2]["connectionId"]
        assert stage.peers[0].closed, "a late open of the first try pulls nobody in"

    run_virtual(main())


def test_the_callers_deadline_is_kept():
    async def main():
        stage = Stage()
        assert await failure(stage.dial(timeout_s=3)) == ("timeout", pytest.approx(3.0))
        task = stage.dial(timeout_s=3)
        await asyncio.sleep(0.1)
        stage.answer()
        assert await failure(task) == ("no-path", pytest.approx(6.0))

    run_virtual(main())


def test_deadlines_can_be_shortened():
    async def main():
        stage = Stage(times=DialTimes(scale=0.01, look_s=0.01))
        kind, at = await failure(stage.dial())
        assert (kind, at) == ("no-such-peer", pytest.approx(0.15, abs=0.02))

    run_virtual(main())


def test_a_relay_changes_what_to_do_about_it():
    async def main():
        relayed = IceSettings(turn=(TurnServer("turn:relay:3478", "u", "c"),))
        sentences = []
        for ice in (relayed, IceSettings()):
            stage = Stage(ice)
            task = stage.dial(timeout_s=1)
            await asyncio.sleep(0.1)
            stage.answer()
            with pytest.raises(LinkFailed) as failed:
                await task
            sentences.append(str(failed.value))
        assert "password" in sentences[0]
        assert "add a relay" in sentences[1]

    run_virtual(main())


@pytest.mark.parametrize(
    ("gets_out", "advice"), [(False, "blocks UDP"), (True, "add a relay"), (None, "add a relay")]
)
def test_where_udp_is_blocked_that_is_the_reason(gets_out, advice):
    async def ask(ice):
        assert ice.stun == ("stun:s",)
        return gets_out

    async def main():
        stage = Stage(IceSettings(stun=("stun:s",)), ask_udp=ask)
        task = stage.dial(timeout_s=1)
        await asyncio.sleep(0.1)
        stage.answer()
        with pytest.raises(LinkFailed, match=advice) as failed:
            await task
        assert failed.value.kind == "no-path"
        await stage.dialer.close()

    run_virtual(main())


def test_without_signaling_no_link_can_be_made():
    async def main():
        stage = Stage()
        stage.signaling.connected = False
        assert (await failure(stage.dial()))[0] == "signaling"

    run_virtual(main())


# Being dialed.


def test_an_offer_is_answered_and_the_connection_handed_over_once_open():
    async def main():
        stage = Stage()
        stage.offer(label="stripe")
        await asyncio.sleep(0.1)
        kind, dst, answer = stage.signaling.sent[0]
        assert (kind, dst, answer["connectionId"]) == ("ANSWER", "other", "dc_x")
        assert stage.incoming == []
        stage.peers[0].open()
        assert [(c.label, c.peer_id, c.dialed) for c in stage.incoming] == [
            ("stripe", "other", False)
        ]

    run_virtual(main())


@pytest.mark.parametrize(
    "changes",
    [
        {"serialization": "json"},
        {"serialization": "raw"},
        {"type": "media"},
        {"connectionId": ""},
        {"connectionId": "x" * 200},
        {"label": "x" * 200},
        {"src": ""},
        {"sdp": {"type": "offer", "sdp": "none"}},
        {"sdp": "v=0"},
        {"connectionId": 5},
    ],
    ids=repr,
)
def test_an_offer_that_is_none_of_ours_is_refused(changes):
    async def main():
        stage = Stage()
        stage.offer(**changes)
        await asyncio.sleep(1)
        assert stage.signaling.sent == []
        assert all(peer.closed for peer in stage.peers)

    run_virtual(main())


def test_the_label_of_an_offer_may_be_absent():
    async def main():
        stage = Stage()
        stage.offer(label=None)
        await asyncio.sleep(0.1)
        stage.peers[0].open()
        assert stage.incoming[0].label == "dc_x"

    run_virtual(main())


def test_a_second_offer_of_the_same_connection_replaces_the_first():
    async def main():
        stage = Stage()
        stage.offer()
        await asyncio.sleep(0.1)
        stage.offer()
        await asyncio.sleep(1)
        assert stage.peers[0].closed
        stage.peers[1].open()
        assert len(stage.incoming) == 1

    run_virtual(main())


def test_offers_in_progress_are_bounded_and_end():
    async def main():
        stage = Stage()
        for number in range(50):
            stage.offer(connectionId=f"dc_{number}")
        assert len(stage.peers) == 10, "of one device"
        for number in range(50):
            stage.offer(src=f"peer-{number}")
        assert len(stage.peers) == 32, "of all"
        await asyncio.sleep(41)
        assert all(peer.closed for peer in stage.peers)
        stage.offer()
        assert len(stage.peers) == 33

    run_virtual(main())


def test_closing_gives_up_what_is_in_progress():
    async def main():
        stage = Stage()
        stage.offer()
        task = stage.dial()
        await asyncio.sleep(0.1)
        await stage.dialer.close()
        assert all(peer.closed for peer in stage.peers)
        assert (await failure(task))[0] in ("closed", "signaling")
        assert not stage.signaling.connected

    run_virtual(main())


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=8,
)
KINDS = st.sampled_from(["OFFER", "ANSWER", "CANDIDATE", "EXPIRE", "LEAVE", "OPEN", "x"])
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        name: JSON | st.sampled_from(["data", "dc_x", "binary", {"type": "offer", "sdp": SDP}])
        for name in ("sdp", "type", "connectionId", "label", "serialization", "candidate")
    },
)


@given(st.lists(st.tuples(KINDS, st.text(max_size=10), FIELDS), max_size=10))
@settings(deadline=None)
def test_nothing_that_a_server_relays_can_break_the_dialer(messages):
    async def main():
        stage = Stage()
        for kind, src, payload in messages:
            stage.signaling.relay(kind, src, **payload)
            await asyncio.sleep(0.01)
        await stage.dialer.close()

    run_virtual(main())
