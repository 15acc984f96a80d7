"""The rules of signaling, by literals and a clock that stands still until told."""

from __future__ import annotations

import pytest

from poolhouse_control.signaling.commands import (
    Claim,
    Close,
    CloseCode,
    Release,
    Route,
    Send,
    SocketId,
)
from poolhouse_control.signaling.limits import Limits
from poolhouse_control.signaling.messages import ConnectParams
from poolhouse_control.signaling.presence import (
    Away,
    Claimed,
    Forwarded,
    Here,
    Parcel,
    Queued,
    QueueFull,
    Taken,
)
from poolhouse_control.signaling.tally import (
    ConnectOutcome,
    DisconnectReason,
    DroppedFrame,
    RelayKind,
    RelayRoute,
    TakeoverKind,
)
from tests.support.exchange import Exchange

OPEN = {"type": "OPEN"}
HEARTBEAT = {"type": "HEARTBEAT"}


def error(sentence: str) -> dict[str, object]:
    return {"type": "ERROR", "payload": {"msg": sentence}}


def expire(src: str, dst: str) -> dict[str, str]:
    return {"type": "EXPIRE", "src": src, "dst": dst}


def offer(src: str, dst: str, payload: object = "p") -> dict[str, object]:
    return {"type": "OFFER", "src": src, "dst": dst, "payload": payload}


class TestOpening:
    def test_a_new_id_is_opened(self) -> None:
        x = Exchange()
        a = x.connect("A")
        assert x.heard(a) == [OPEN]
        assert x.hub.peer_ids() == ["A"]
        assert x.hub.is_registered(SocketId(a))

    @pytest.mark.parametrize("missing", ["peer_id", "token", "key"])
    def test_id_token_and_key_are_wanted(self, missing: str) -> None:
        """Signaling, 2 rule 1."""
        values = {"peer_id": "A", "token": "t", "key": "peerjs"} | {missing: ""}
        x = Exchange()
        a = x.connect(**values)
        assert x.heard(a) == [error("No id, token, or key supplied to websocket server")]
        assert x.codes[a] == 1008
        assert x.hub.tally.connects[ConnectOutcome.BAD_PARAMS] == 1

    def test_a_missing_id_wins_over_a_wrong_key(self) -> None:
        x = Exchange()
        a = x.connect("", key="wrong")
        assert x.heard(a) == [error("No id, token, or key supplied to websocket server")]

    def test_a_wrong_key_is_refused_with_error(self) -> None:
        """Not INVALID-KEY: the reference never sends it (3.2)."""
        x = Exchange()
        a = x.connect("A", key="wrong")
        assert x.heard(a) == [error("Invalid key provided")]
        assert x.codes[a] == 1008
        assert x.hub.tally.connects[ConnectOutcome.BAD_KEY] == 1

    @pytest.mark.parametrize("peer_id", ["-", "a\nb", "<script>", "x" * 129, "a  b"])
    def test_odd_ids_are_refused(self, peer_id: str) -> None:
        """Signaling, 1.3."""
        x = Exchange()
        a = x.connect(peer_id)
        (message,) = x.heard(a)
        assert message["type"] == "ERROR"
        assert x.codes[a] == 1008

    def test_a_huge_token_is_refused(self) -> None:
        x = Exchange()
        a = x.connect("A", token="t" * 1025)
        assert x.heard(a)[0]["type"] == "ERROR"

    def test_another_token_gets_id_taken_and_the_owner_notices_nothing(self) -> None:
        x = Exchange()
        a = x.connect("A", "one")
        x.heard(a)
        rival = x.connect("A", "two")
        assert x.heard(rival) == [{"type": "ID-TAKEN", "payload": {"msg": "ID is taken"}}]
        assert x.codes == {rival: 1008}
        assert x.heard(a) == []
        b = x.connect("B")
        x.offer(b, "A")
        assert x.heard(a) == [offer("B", "A")]
        assert x.hub.tally.connects[ConnectOutcome.ID_TAKEN] == 1

    def test_a_rivals_end_does_not_free_the_id(self) -> None:
        x = Exchange()
        x.connect("A", "one")
        rival = x.connect("A", "two")
        x.hang_up(rival)
        assert x.hub.peer_ids() == ["A"]

    def test_a_full_server_refuses_new_ids(self) -> None:
        x = Exchange(Limits(max_peers=1))
        x.connect("A", "one")
        b = x.connect("B")
        assert x.heard(b) == [error("Server has reached its concurrent user limit")]
        assert x.codes[b] == 1013

    def test_a_full_server_still_says_id_taken_and_lets_owners_back(self) -> None:
        """Signaling, 2 rule 3: the limit comes after the check of the id."""
        x = Exchange(Limits(max_peers=1))
        x.connect("A", "one")
        assert x.heard(x.connect("A", "two"))[0]["type"] == "ID-TAKEN"
        assert x.heard(x.connect("A", "one")) == [OPEN]

    def test_a_refused_socket_cannot_speak(self) -> None:
        x = Exchange()
        a = x.connect("A")
        rival = x.connect("A", "other")
        x.heard(a)
        x.offer(rival, "A")
        assert x.heard(a) == []

    def test_ids_differ_by_case(self) -> None:
        x = Exchange()
        x.connect("a")
        assert x.heard(x.connect("A", "other")) == [OPEN]

    @pytest.mark.parametrize(
        ("origin", "outcome"),
        [
            ("https://room.example", ConnectOutcome.OPENED),
            ("https://ROOM.example", ConnectOutcome.OPENED),
            (None, ConnectOutcome.OPENED),
            ("https://evil.example", ConnectOutcome.ORIGIN),
            ("null", ConnectOutcome.ORIGIN),
        ],
    )
    def test_a_list_of_origins_holds_for_sockets_too(
        self, origin: str | None, outcome: ConnectOutcome
    ) -> None:
        """Signaling, 1.1: browsers do not apply CORS to upgrades."""
        x = Exchange(origins=("https://room.example",))
        x.connect("A", origin=origin)
        assert x.hub.tally.connects[outcome] == 1


class TestTakeover:
    def test_the_new_socket_is_opened_and_the_old_one_closed(self) -> None:
        """Signaling, 2.2."""
        x = Exchange()
        old = x.connect("A", "one")
        x.heard(old)
        new = x.connect("A", "one")
        assert x.heard(new) == [OPEN]
        assert x.codes == {old: CloseCode.REPLACED}
        assert x.heard(old) == []
        assert x.hub.tally.takeovers[TakeoverKind.SAME_TOKEN] == 1
        assert x.hub.tally.disconnects[DisconnectReason.REPLACED] == 1

    def test_messages_go_to_the_new_socket(self) -> None:
        x = Exchange()
        old, b = x.connect("A", "one"), x.connect("B")
        new = x.connect("A", "one")
        x.heard(new)
        x.heard(old)
        x.offer(b, "A")
        assert x.heard(new) == [offer("B", "A")]
        assert x.heard(old) == []

    def test_the_old_socket_is_not_heard_any_more(self) -> None:
        x = Exchange()
        old, b = x.connect("A", "one"), x.connect("B")
        x.connect("A", "one")
        x.heard(b)
        x.offer(old, "B")
        x.say(old, {"type": "LEAVE"})
        assert x.heard(b) == []
        assert "A" in x.hub.peer_ids()

    def test_the_old_sockets_end_does_not_free_the_id(self) -> None:
        x = Exchange()
        old = x.connect("A", "one")
        new = x.connect("A", "one")
        x.hang_up(old)
        assert x.hub.peer_ids() == ["A"]
        assert x.heard(x.connect("A", "two"))[0]["type"] == "ID-TAKEN"
        assert x.hub.is_registered(SocketId(new))

    def test_the_clock_of_life_starts_anew(self) -> None:
        x = Exchange(Limits(alive_timeout_s=10))
        x.connect("A", "one")
        x.advance(9)
        new = x.connect("A", "one")
        x.advance(9)
        assert new not in x.codes

    def test_many_takeovers_leave_one_socket(self) -> None:
        x = Exchange()
        sockets = [x.connect("A", "one") for _ in range(10)]
        assert set(x.codes) == set(sockets[:-1])
        assert x.hub.peer_count == 1


class TestRelay:
    @pytest.mark.parametrize("kind", ["OFFER", "ANSWER", "CANDIDATE", "LEAVE"])
    def test_messages_reach_their_receiver_with_the_true_src(self, kind: str) -> None:
        x = Exchange()
        a, b = x.connect("A"), x.connect("B")
        x.heard(b)
        x.say(a, {"type": kind, "src": "C", "dst": "B", "payload": {"k": 1}, "extra": 1})
        assert x.heard(b) == [{"type": kind, "src": "A", "dst": "B", "payload": {"k": 1}}]
        assert x.hub.tally.messages[RelayKind(kind), RelayRoute.LOCAL] == 1

    def test_member_order_is_that_of_the_reference(self) -> None:
        x = Exchange()
        a, b = x.connect("A"), x.connect("B")
        x.say(a, '{"payload": {"z":1, "a":2}, "dst":"B", "type":"OFFER"}')
        assert x.texts[b][-1] == '{"type":"OFFER","src":"A","dst":"B","payload":{"z":1, "a":2}}'

    def test_a_message_to_oneself_is_delivered(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        x.offer(a, "A")
        assert x.heard(a) == [offer("A", "A")]

    def test_order_of_a_pair_is_kept_across_types(self) -> None:
        x = Exchange()
        a, b = x.connect("A"), x.connect("B")
        x.heard(b)
        kinds = ["CANDIDATE", "OFFER", "LEAVE", "ANSWER", "CANDIDATE", "OFFER"]
        for number, kind in enumerate(kinds):
            x.say(a, {"type": kind, "dst": "B", "payload": number})
        assert [(m["type"], m["payload"]) for m in x.heard(b)] == [
            (kind, number) for number, kind in enumerate(kinds)
        ]

    def test_a_heartbeat_is_never_answered(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        x.say(a, HEARTBEAT)
        assert x.heard(a) == []
        assert x.hub.tally.heartbeats == 1

    @pytest.mark.parametrize("kind", ["OPEN", "ERROR", "ID-TAKEN", "EXPIRE", "INVALID-KEY", "X"])
    def test_a_client_cannot_speak_as_the_server(self, kind: str) -> None:
        x = Exchange()
        a, b = x.connect("A"), x.connect("B")
        x.heard(b)
        x.say(a, {"type": kind, "dst": "B", "payload": {"msg": "m"}})
        assert x.heard(b) == []
        assert x.hub.tally.dropped_frames[DroppedFrame.IGNORED] == 1

    @pytest.mark.parametrize("dst", ["", None])
    def test_a_message_to_nobody_is_dropped(self, dst: str | None) -> None:
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        x.say(a, {"type": "OFFER", "dst": dst, "payload": 1})
        x.say(a, {"type": "OFFER", "payload": 1})
        x.advance(10)
        assert x.heard(a) == []
        assert x.hub.tally.messages[RelayKind.OFFER, RelayRoute.DROPPED] == 2

    def test_a_peers_end_is_told_to_nobody(self) -> None:
        """Signaling, 3.2: a LEAVE would tear down healthy links."""
        x = Exchange()
        a, b = x.connect("A"), x.connect("B")
        x.offer(a, "B")
        x.heard(a)
        x.hang_up(b)
        x.advance(100)
        assert x.heard(a) == []


class TestLeave:
    @pytest.mark.parametrize("dst", ["", None])
    def test_leave_without_dst_signs_off(self, dst: str | None) -> None:
        """Signaling, 4.2: the id is free and the socket ends."""
        x = Exchange()
        a, b = x.connect("A", "one"), x.connect("B")
        x.heard(a)
        x.say(a, {"type": "LEAVE", "dst": dst})
        assert x.codes[a] == 1000
        assert x.hub.peer_ids() == ["B"]
        x.offer(a, "B")
        assert x.heard(b) == [OPEN]
        assert x.heard(x.connect("A", "two")) == [OPEN]
        x.hang_up(a)
        assert "A" in x.hub.peer_ids()
        assert x.hub.tally.disconnects[DisconnectReason.LEFT] == 1

    def test_leave_to_an_absent_peer_is_dropped(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        x.say(a, {"type": "LEAVE", "dst": "Z"})
        x.advance(10)
        assert x.heard(a) == []
        assert x.presence.queued == 0
        assert x.heard(x.connect("Z")) == [OPEN]


class TestAbsentPeers:
    def test_messages_wait_and_come_after_open_in_order(self) -> None:
        x = Exchange()
        a, c = x.connect("A"), x.connect("C")
        x.offer(a, "Z", 1)
        x.offer(c, "Z", 2)
        x.say(a, {"type": "CANDIDATE", "dst": "Z", "payload": 3})
        x.advance(4.9)
        z = x.connect("Z")
        assert x.heard(z) == [
            OPEN,
            offer("A", "Z", 1),
            offer("C", "Z", 2),
            {"type": "CANDIDATE", "src": "A", "dst": "Z", "payload": 3},
        ]
        x.heard(a)
        x.advance(60)
        assert x.heard(a) == []
        assert x.presence.queued == 0

    def test_each_sender_is_told_once_at_the_age_of_the_first_message(self) -> None:
        """Signaling, 4.3: a message queued late expires with the rest."""
        x = Exchange()
        a, c = x.connect("A"), x.connect("C")
        x.heard(a)
        x.heard(c)
        x.offer(a, "Z")
        x.offer(a, "Z")
        x.advance(4.5)
        x.offer(c, "Z")
        assert x.heard(a) == x.heard(c) == []
        x.advance(0.5)
        assert x.heard(a) == [expire("Z", "A")]
        assert x.heard(c) == [expire("Z", "C")]
        x.advance(60)
        assert x.heard(a) == x.heard(c) == []
        assert x.hub.tally.expired == 2
        assert x.heard(x.connect("Z")) == [OPEN]

    def test_queues_of_two_absent_peers_expire_apart(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        x.offer(a, "Y")
        x.advance(2)
        x.offer(a, "Z")
        x.advance(3)
        assert x.heard(a) == [expire("Y", "A")]
        x.advance(2)
        assert x.heard(a) == [expire("Z", "A")]

    def test_a_queue_after_a_delivery_has_its_own_age(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        x.offer(a, "Z")
        x.advance(4)
        x.hang_up(x.connect("Z"))
        x.offer(a, "Z")
        x.advance(4)
        assert x.heard(a) == []
        x.advance(1)
        assert x.heard(a) == [expire("Z", "A")]

    def test_notice_for_a_sender_that_is_gone_is_dropped(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.offer(a, "Z")
        x.hang_up(a)
        x.advance(10)
        assert x.hub.tally.expired == 0
        assert x.presence.queued == 0

    def test_notice_reaches_a_sender_on_its_new_socket(self) -> None:
        x = Exchange()
        a = x.connect("A", "one")
        x.offer(a, "Z")
        new = x.connect("A", "one")
        x.heard(new)
        x.advance(5)
        assert x.heard(new) == [expire("Z", "A")]

    def test_messages_wait_for_a_receiver_whose_socket_just_ended(self) -> None:
        """A host that reloads within 5 s gets its guests' offers."""
        x = Exchange()
        a, host = x.connect("A"), x.connect("host", "one")
        x.hang_up(host)
        x.offer(a, "host")
        back = x.connect("host", "two")
        assert x.heard(back) == [OPEN, offer("A", "host")]

    def test_overflow_of_one_queue_is_told_at_once(self) -> None:
        x = Exchange(Limits(max_queued_per_peer=3))
        a = x.connect("A")
        x.heard(a)
        for number in range(4):
            x.offer(a, "Z", number)
        assert x.heard(a) == [expire("Z", "A")]
        assert [m["payload"] for m in x.heard(x.connect("Z"))[1:]] == [0, 1, 2]
        assert x.hub.tally.messages[RelayKind.OFFER, RelayRoute.DROPPED] == 1

    def test_overflow_in_bytes_is_told_at_once(self) -> None:
        x = Exchange(Limits(max_queued_bytes_per_peer=1000))
        a = x.connect("A")
        x.heard(a)
        x.offer(a, "Z", "x" * 600)
        x.offer(a, "Z", "ü" * 300)
        assert x.heard(a) == [expire("Z", "A")]

    @pytest.mark.parametrize("limits", [Limits(max_queued=2), Limits(max_queued_bytes=120)])
    def test_overflow_of_all_queues_is_told_at_once(self, limits: Limits) -> None:
        x = Exchange(limits)
        a = x.connect("A")
        x.heard(a)
        for dst in ("X", "Y", "Z"):
            x.offer(a, dst)
        assert x.heard(a) == [expire("Z", "A")]
        x.advance(5)
        x.heard(a)
        x.offer(a, "Z")
        assert x.heard(a) == [], "room comes back"

    def test_one_sender_cannot_fill_the_server(self) -> None:
        x = Exchange(Limits(max_queued_per_sender=2))
        a, b = x.connect("A"), x.connect("B")
        x.heard(a)
        x.heard(b)
        for dst in ("X", "Y", "Z"):
            x.offer(a, dst)
        assert x.heard(a) == [expire("Z", "A")]
        x.offer(b, "Z")
        assert x.heard(b) == []

    def test_a_senders_share_comes_back(self) -> None:
        x = Exchange(Limits(max_queued_per_sender=1))
        a = x.connect("A")
        x.offer(a, "Y")
        x.connect("Y")
        x.offer(a, "Z")
        x.advance(5)
        x.heard(a)
        x.offer(a, "Z")
        assert x.heard(a) == []

    def test_an_id_that_nobody_can_have_expires_at_once(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        x.offer(a, "no such/id")
        assert x.heard(a) == [expire("no such/id", "A")]
        assert x.presence.queued == 0

    def test_a_monstrous_dst_is_not_echoed(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        x.offer(a, "z" * 129)
        x.advance(10)
        assert x.heard(a) == []


class TestLiveness:
    @pytest.mark.parametrize(
        "frame",
        [
            HEARTBEAT,
            {"type": "OFFER", "dst": "B", "payload": 1},
            {"type": "whatever"},
            "not json",
            b"\xff",
        ],
        ids=["heartbeat", "offer", "unknown", "bad text", "bad bytes"],
    )
    def test_any_frame_is_a_sign_of_life(self, frame: object) -> None:
        """Signaling, 5.2."""
        x = Exchange(Limits(alive_timeout_s=60))
        a = x.connect("A")
        x.advance(59)
        x.say(a, frame)
        x.advance(59)
        assert a not in x.codes
        x.advance(1)
        assert x.codes == {a: 1008}
        assert x.hub.peer_count == 0
        assert x.hub.tally.disconnects[DisconnectReason.SILENT] == 1

    def test_only_the_silent_are_cut(self) -> None:
        x = Exchange(Limits(alive_timeout_s=60))
        sockets = {name: x.connect(name) for name in "ABCD"}
        x.advance(30)
        x.say(sockets["B"], HEARTBEAT)
        x.advance(30)
        assert set(x.codes) == {sockets[name] for name in "ACD"}
        assert x.hub.peer_ids() == ["B"]

    def test_a_cut_id_is_free(self) -> None:
        x = Exchange(Limits(alive_timeout_s=60))
        a = x.connect("A", "one")
        x.advance(60)
        assert x.heard(x.connect("A", "two")) == [OPEN]
        x.hang_up(a)
        assert x.hub.peer_ids() == ["A"]

    def test_being_spoken_to_is_no_sign_of_life(self) -> None:
        x = Exchange(Limits(alive_timeout_s=60))
        a, b = x.connect("A"), x.connect("B")
        for _ in range(6):
            x.advance(10)
            x.offer(a, "B")
        assert x.codes == {b: 1008}


class TestBadFrames:
    def test_a_socket_works_on_after_a_few(self) -> None:
        """Signaling, 5.4: the reference goes deaf after one."""
        x = Exchange()
        a, b = x.connect("A"), x.connect("B")
        x.heard(b)
        for frame in ("not json", "null", "5", b"\xff"):
            x.say(a, frame)
        x.offer(a, "B")
        assert x.heard(b) == [offer("A", "B")]
        assert x.hub.tally.dropped_frames[DroppedFrame.BAD] == 4

    def test_more_than_a_few_end_the_socket(self) -> None:
        x = Exchange(Limits(max_bad_frames=3))
        a = x.connect("A")
        for _ in range(3):
            x.say(a, "[")
        assert x.codes == {a: 1008}
        assert x.hub.peer_count == 0
        assert x.hub.tally.disconnects[DisconnectReason.BAD_FRAMES] == 1
        x.say(a, "[")

    def test_unknown_objects_never_end_a_socket(self) -> None:
        x = Exchange()
        a = x.connect("A")
        for _ in range(1000):
            x.say(a, "{}")
        assert x.codes == {}


class TestEndings:
    def test_a_slow_reader_is_cut(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.perform(x.hub.overflowed(SocketId(a)))
        assert x.codes == {a: 1013}
        assert x.hub.peer_count == 0
        assert x.hub.tally.outbox_dropped == 1

    def test_an_overflow_of_a_socket_that_is_gone_is_only_counted(self) -> None:
        x = Exchange()
        assert x.hub.overflowed(SocketId(99)) == ()

    def test_an_id_lost_to_somebody_else_ends_its_socket(self) -> None:
        x = Exchange()
        a, b = x.connect("A"), x.connect("B")
        (pair,) = [pair for pair in x.hub.owned() if pair[0] == "A"]
        x.perform(x.hub.lost([("B", 999), ("unknown", 1)]))
        assert x.codes == {}, "an earlier claim of an id that is held"
        x.perform(x.hub.lost([pair]))
        assert x.codes == {a: CloseCode.REPLACED}
        assert x.hub.is_registered(SocketId(b))

    def test_closed_is_said_once(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.hang_up(a)
        x.hang_up(a)
        assert x.hub.tally.disconnects[DisconnectReason.PEER] == 1

    def test_sending_bytes_are_counted(self) -> None:
        x = Exchange()
        a, b = x.connect("A"), x.connect("B")
        x.say(a, '{"type":"OFFER","dst":"B","payload":"ü"}')
        tally = x.hub.tally.message_bytes
        assert tally["in"] == len('{"type":"OFFER","dst":"B","payload":"ü"}'.encode())
        assert tally["out"] == sum(len(t.encode()) for s in (a, b) for t in x.texts[s])


class TestSlowStore:
    """A store that answers later than it was asked: other things happen in between."""

    def test_a_socket_that_ended_meanwhile_gives_its_id_back(self) -> None:
        x = Exchange()
        socket = SocketId(7)
        (claim,) = x.hub.connect(socket, ConnectParams(key="peerjs", peer_id="A", token="t"))
        assert isinstance(claim, Claim)
        assert x.hub.closed(socket, DisconnectReason.PEER) == ()
        waiting = Parcel(RelayKind.OFFER, "B", "A", "{}")
        assert x.hub.claimed(claim, Claimed(epoch=5, waiting=(waiting,)), 0.0) == [
            Release("A", 5),
            Route(waiting, may_wait=True, hop=0),
        ]
        assert x.hub.peer_count == 0

    def test_a_refusal_for_a_socket_that_ended_meanwhile_is_nothing(self) -> None:
        x = Exchange()
        (claim,) = x.hub.connect(SocketId(7), ConnectParams(key="peerjs", peer_id="A", token="t"))
        assert isinstance(claim, Claim)
        x.hub.closed(SocketId(7), DisconnectReason.PEER)
        assert not x.hub.claimed(claim, Taken(), 0.0)

    def test_a_new_life_of_a_queue_replaces_the_wait_for_the_old_one(self) -> None:
        """Another process delivered the first queue; only the second one may expire."""
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        for queue, at in ((1, 0.0), (2, 4.0)):
            parcel = Parcel(RelayKind.OFFER, "A", "Z", "{}")
            x.hub.routed(Route(parcel, may_wait=True), Queued(queue, queue, 0.0), at)
        assert x.hub.tick(5.0) == []
        (expire_command,) = x.hub.tick(9.0)
        assert expire_command.senders == {2: "A"}
        assert x.hub.expired(expire_command, []) == []
        (send,) = x.hub.expired(expire_command, [2])
        assert isinstance(send, Send)

    def test_the_age_of_a_queue_that_others_began_counts(self) -> None:
        x = Exchange()
        x.connect("A")
        parcel = Parcel(RelayKind.OFFER, "A", "Z", "{}")
        x.hub.routed(Route(parcel, may_wait=True), Queued(1, 1, waited_s=3.0), 10.0)
        assert x.hub.tick(11.9) == []
        assert len(x.hub.tick(12.0)) == 1


class TestReplicas:
    """What other replicas do, while claims are on the way and afterwards."""

    def claiming(self, x: Exchange, peer_id: str = "Z", socket: int = 90) -> Claim:
        params = ConnectParams(key="peerjs", peer_id=peer_id, token="t")
        (claim,) = x.hub.connect(SocketId(socket), params)
        assert isinstance(claim, Claim)
        return claim

    def parcel(self, text: str = '{"n":1}', kind: RelayKind = RelayKind.OFFER) -> Parcel:
        return Parcel(kind, "far", "Z", text)

    def test_a_parcel_from_elsewhere_is_delivered(self) -> None:
        x = Exchange()
        z = x.connect("Z")
        x.heard(z)
        x.perform(x.hub.arrived(self.parcel(), 0))
        assert x.heard(z) == [{"n": 1}]

    def test_one_whose_receiver_moved_is_sent_on_with_one_hop_more(self) -> None:
        x = Exchange()
        assert x.hub.arrived(self.parcel(), 1) == (Route(self.parcel(), may_wait=True, hop=2),)
        assert x.hub.tally.rerouted == 1

    @pytest.mark.parametrize("kind", [RelayKind.LEAVE, RelayKind.EXPIRE])
    def test_goodbyes_and_notices_never_wait(self, kind: RelayKind) -> None:
        x = Exchange()
        (route,) = x.hub.arrived(self.parcel(kind=kind), 0)
        assert route == Route(self.parcel(kind=kind), may_wait=False, hop=1)

    def test_what_comes_before_the_claims_answer_is_held_and_follows_open(self) -> None:
        x = Exchange()
        a = x.connect("A")
        claim = self.claiming(x)
        assert x.hub.arrived(self.parcel('{"n":2}'), 0) == ()
        x.offer(a, "Z", 3)
        waiting = (self.parcel('{"n":1}'),)
        x.perform(x.hub.claimed(claim, Claimed(epoch=5, waiting=waiting), x.now))
        assert x.heard(90) == [OPEN, {"n": 1}, {"n": 2}, offer("A", "Z", 3)]

    def test_what_was_held_for_a_claim_that_failed_is_sent_on(self) -> None:
        x = Exchange()
        claim = self.claiming(x)
        x.hub.arrived(self.parcel(), 0)
        commands = x.hub.claimed(claim, Taken(), x.now)
        assert commands[-1] == Route(self.parcel(), may_wait=True, hop=1)

    def test_what_is_held_is_bounded(self) -> None:
        x = Exchange(Limits(max_queued_per_peer=2))
        self.claiming(x)
        assert [len(x.hub.arrived(self.parcel(), 0)) for _ in range(3)] == [0, 0, 1]

    def test_of_two_claims_on_the_way_the_second_waits_for_what_is_held(self) -> None:
        x = Exchange()
        first, second = self.claiming(x, socket=90), self.claiming(x, socket=91)
        x.hub.arrived(self.parcel(), 0)
        assert len(x.hub.claimed(first, Taken(), x.now)) == 2, "the refusal, and nothing more"
        x.perform(x.hub.claimed(second, Claimed(epoch=5), x.now))
        assert x.heard(91) == [OPEN, {"n": 1}]

    def test_answers_in_another_order_leave_the_newest_claim(self) -> None:
        x = Exchange()
        first, second = self.claiming(x, socket=90), self.claiming(x, socket=91)
        x.perform(x.hub.claimed(second, Claimed(epoch=6), x.now))
        waiting = (self.parcel(),)
        x.perform(x.hub.claimed(first, Claimed(epoch=5, waiting=waiting), x.now))
        assert x.codes == {90: CloseCode.REPLACED}
        assert x.heard(91) == [OPEN, {"n": 1}]
        assert x.hub.owned() == [("Z", 6)]

    def test_a_kick_ends_the_claim_it_names_and_earlier_ones_only(self) -> None:
        x = Exchange()
        claim = self.claiming(x)
        x.perform(x.hub.claimed(claim, Claimed(epoch=5), x.now))
        x.perform(x.hub.kicked("Z", 4))
        assert x.codes == {}
        x.perform(x.hub.kicked("Z", 5))
        assert x.codes == {90: CloseCode.REPLACED}
        assert x.hub.tally.disconnects[DisconnectReason.LOST_ID] == 1
        x.perform(x.hub.kicked("nobody", 5))

    def test_a_kick_that_overtakes_the_claims_answer_counts(self) -> None:
        x = Exchange()
        claim = self.claiming(x)
        assert x.hub.kicked("Z", 5) == ()
        x.perform(x.hub.claimed(claim, Claimed(epoch=5), x.now))
        assert x.codes == {90: CloseCode.REPLACED}
        assert x.heard(90) == []
        assert x.hub.peer_count == 0

    def test_a_kick_of_an_earlier_claim_does_not_void_the_one_on_the_way(self) -> None:
        x = Exchange()
        claim = self.claiming(x)
        x.hub.kicked("Z", 4)
        x.perform(x.hub.claimed(claim, Claimed(epoch=5), x.now))
        assert x.heard(90) == [OPEN]

    def test_a_store_that_is_away_looks_like_an_outage(self) -> None:
        """An ERROR would be fatal to the client; a bare close makes it come again (2)."""
        x = Exchange()
        x.perform(x.hub.claimed(self.claiming(x), Away(), x.now))
        assert x.codes == {90: 1013}
        assert x.heard(90) == []
        assert x.hub.tally.connects[ConnectOutcome.STORE_DOWN] == 1

    def test_a_parcel_that_cannot_be_routed_comes_back_at_once(self) -> None:
        x = Exchange()
        a = x.connect("A")
        x.heard(a)
        route = Route(Parcel(RelayKind.OFFER, "A", "Z", "{}"), may_wait=True)
        x.perform(x.hub.routed(route, Away(), x.now))
        assert x.heard(a) == [expire("Z", "A")]
        route = Route(Parcel(RelayKind.LEAVE, "A", "Z", "{}"), may_wait=False)
        assert x.hub.routed(route, Away(), x.now) == ()

    def test_a_receiver_that_came_while_the_store_was_asked_gets_its_parcel(self) -> None:
        x = Exchange()
        z = x.connect("Z")
        x.heard(z)
        x.perform(x.hub.routed(Route(self.parcel(), may_wait=True), Here(), x.now))
        assert x.heard(z) == [{"n": 1}]

    def test_one_that_is_here_by_the_store_only_is_looked_for_once_more(self) -> None:
        x = Exchange()
        route = Route(self.parcel(), may_wait=True)
        assert x.hub.routed(route, Here(), x.now) == (Route(self.parcel(), may_wait=True, hop=1),)

    def test_what_was_forwarded_is_done(self) -> None:
        x = Exchange()
        assert x.hub.routed(Route(self.parcel(), may_wait=True), Forwarded(), x.now) == ()
        assert x.hub.tally.messages[RelayKind.OFFER, RelayRoute.REMOTE] == 1

    def test_a_sender_elsewhere_is_told_through_its_replica(self) -> None:
        x = Exchange()
        route = Route(self.parcel(), may_wait=True, hop=1)
        (told,) = x.hub.routed(route, QueueFull(), x.now)
        assert isinstance(told, Route)
        assert (told.parcel.kind, told.parcel.dst, told.may_wait) == (
            RelayKind.EXPIRE, "far", False,
        )  # fmt: skip
        assert told.parcel.text == '{"type":"EXPIRE","src":"Z","dst":"far"}'

    def test_a_dismissed_peer_is_heard_out(self) -> None:
        x = Exchange()
        a, b = x.connect("A"), x.connect("B")
        x.heard(b)
        x.perform(x.hub.dismiss(SocketId(a)))
        assert x.codes == {a: 1012}
        assert x.hub.peer_ids() == ["B"]
        x.offer(a, "B", "last words")
        assert x.heard(b) == [offer("A", "B", "last words")]
        x.offer(b, "A", "wait")
        assert x.hub.waiting_count == 1, "for it at its next replica"
        assert x.hub.dismiss(SocketId(a)) == ()
        assert x.hub.closed(SocketId(a), DisconnectReason.PEER) == (), "released already"
        assert x.hub.tally.disconnects[DisconnectReason.SHUTDOWN] == 1
        assert x.hub.dismiss(SocketId(99)) == ()

    def test_a_dismissed_peer_that_says_goodbye_or_nothing_is_let_go(self) -> None:
        x = Exchange(Limits(alive_timeout_s=60))
        a, b = x.connect("A"), x.connect("B")
        for socket in (a, b):
            commands = x.hub.dismiss(SocketId(socket))
            assert commands[0] == Release("AB"[socket - 1], commands[0].epoch, hand_over=True)
        assert [type(each) for each in x.hub.frame(SocketId(a), '{"type":"LEAVE"}', x.now)] == [
            Close
        ]
        assert [type(each) for each in x.hub.tick(x.now + 60)] == [Close]
        assert x.hub.peer_count == 0

    def test_its_id_can_come_back_here(self) -> None:
        """In a replica that does not drain after all."""
        x = Exchange()
        a = x.connect("A")
        x.perform(x.hub.dismiss(SocketId(a)))
        again = x.connect("A", "other")
        assert x.heard(again) == [OPEN]
        x.hang_up(a)
        assert x.hub.peer_ids() == ["A"]


def test_commands_never_show_a_token() -> None:
    x = Exchange()
    (claim,) = x.hub.connect(SocketId(1), ConnectParams(key="peerjs", peer_id="A", token="sesame"))
    assert "sesame" not in repr(claim)
