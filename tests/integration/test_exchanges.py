"""Exchanges at the gate between a real program and a peer that says what it likes, over WebRTC."""

import itertools
import json
import re
import secrets
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from poolhouse_node.device.entrance import SOMEONE_BETWEEN, UNVERIFIED
from poolhouse_node.room.joining import Joiner
from poolhouse_node.room.proofs import Transcript, commitment, pass_hash, pass_id
from poolhouse_node.wire.messages import parse, to_map
from poolhouse_node.wire.messages.joining import Admit
from tests.support.program import Program
from tests.support.signaling_between import Speaker, signaling_between

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(120)]

CODE = "4TKG9P"
HOST_ID = f"pooled-room-{CODE}"
HELLO = {"t": "hello", "name": "otter", "v": 4, "meta": {"ua": "Device", "webgpu": False}}
NUMBERS = itertools.count(1)


@dataclass
class Room:
    """A real host, its key, a pass that it gave, and the server over which it is reached."""

    between: object
    host: Program
    key: str
    mesh_key: str
    passes: list[str]

    def call(self, src: str = "") -> Speaker:
        return self.between.call(src or f"otter-{next(NUMBERS)}", HOST_ID)

    def joiner(self, speaker: Speaker, **holds: str) -> Joiner:
        return Joiner(secrets.token_bytes, speaker.me, HOST_ID, **holds)


def open_host(folder, *options: str):
    """A real host at a server of the test's own."""
    with signaling_between() as between:
        env = {"POOLHOUSE_STATE": str(folder), "POOLHOUSE_SIGNAL": between.url}
        host = Program.start("host", "--code", CODE, "--wait", "9", *options, env=env)
        try:
            host.until("poolhouse join '")
            kept = json.loads((folder / "rooms" / CODE / "gate.json").read_text())
            yield Room(between, host, kept["key"], kept["mesh_key"], [])
            assert host.process.poll() is None, host.stderr
        finally:
            host.kill()


@pytest.fixture(scope="module")
def room(tmp_path_factory):
    """A host that lets in who proves something and asks its person about others."""
    for room in open_host(tmp_path_factory.mktemp("host")):
        speaker = room.call()
        _, admit = prove(room, speaker, key=room.key)
        room.passes.append(admit["pass"])
        speaker.close()
        yield room


@pytest.fixture
def older(tmp_path):
    """A host that takes older devices."""
    yield from open_host(tmp_path, "--take-older-devices")


OUTCOMES = ("admit", "lobby", "bye")


def prove(room, speaker, hello=None, proof=None, **holds):
    """A whole exchange; ``hello`` and ``proof`` overwrite fields (None takes one out)."""
    joiner = room.joiner(speaker, **holds)
    speaker.say(changed(HELLO | {"join": 1} | joiner.hello_fields(), hello))
    first = speaker.until("auth", *OUTCOMES)
    if first["t"] == "auth":
        answer = to_map(joiner.answer(parse(first), speaker.binding))
        speaker.say(changed(answer, proof))
    return joiner, speaker.until(*OUTCOMES)


def changed(message: dict, fields: dict | None) -> dict:
    return {name: value for name, value in (message | (fields or {})).items() if value is not None}


def outcome(message) -> str:
    """What the host said, in a word."""
    via = message.get("via")
    return f"in by {via}" if via else {"admit": "in"}.get(message["t"], message["t"])


# ---- the host's side ----------------------------------------------------------------------------

WRONG = "w" * 22
PROOFS = {
    "key": ({"key": "right"}, {}, {}, "in by key"),
    "pass": ({"come_back_pass": "right"}, {}, {}, "in by pass"),
    "both": ({"key": "right", "come_back_pass": "right"}, {}, {}, "in by pass"),
    "wrong key": ({"key": "wrong"}, {}, {}, "lobby"),
    "wrong pass": ({"come_back_pass": "wrong"}, {}, {}, "lobby"),
    "wrong pass, right key": ({"key": "right", "come_back_pass": "wrong"}, {}, {}, "in by key"),
    "wrong key, right pass": ({"key": "wrong", "come_back_pass": "right"}, {}, {}, "in by pass"),
    "typed code": ({}, {}, {}, "lobby"),
    "key not announced": ({"key": "right"}, {"kc": None}, {}, "lobby"),
    "key announced by true": ({"key": "right"}, {"kc": True}, {}, "lobby"),
    "pass not announced": ({"come_back_pass": "right"}, {"pid": None}, {}, "lobby"),
    "key announced, no proof": ({"key": "right"}, {}, {"kp": None}, "lobby"),
    "nonce of another commitment": ({"key": "right"}, {}, {"jn": "A" * 22}, "bye"),
    "cannot wait, right key": ({"key": "right"}, {"join": None}, {}, "in by key"),
    "cannot wait, wrong key": ({"key": "wrong"}, {"join": None}, {}, "bye"),
    "no auth": ({"key": "right"}, {"auth": None}, {}, "lobby"),
    "no commitment": ({"key": "right"}, {"jc": None}, {}, "lobby"),
    "no auth, cannot wait": ({"key": "right"}, {"auth": None, "join": None}, {}, "bye"),
    "another version": ({"key": "right"}, {"v": 3}, {}, "bye"),
}


def held(room, holds: dict) -> dict:
    right = {"key": room.key, "come_back_pass": room.passes[0] if room.passes else ""}
    return {kind: right[kind] if which == "right" else WRONG for kind, which in holds.items()}


def check(room, speaker, joiner, message, expected: str) -> None:
    """The host said what it should, and proved what it had to."""
    assert outcome(message) == expected
    admitted = expected.startswith("in")
    assert bool(speaker.said("admit")) is admitted
    if not admitted:
        assert not speaker.said("roster")
        return
    assert joiner.judge(parse(message)) == "verified"
    assert message["mk"] == room.mesh_key
    assert ("pass" in message) is (message["via"] == "key")
    speaker.until("roster")


@pytest.mark.parametrize(("holds", "hello", "proof", "expected"), PROOFS.values(), ids=PROOFS)
def test_every_kind_of_proof(room, holds, hello, proof, expected):
    speaker = room.call()
    joiner, message = prove(room, speaker, hello, proof, **held(room, holds))
    check(room, speaker, joiner, message, expected)
    speaker.close()


FLAWS = st.fixed_dictionaries(
    {},
    optional={
        "another binding": st.just(True),
        "ids swapped": st.just(True),
        "role of the host": st.just(True),
        "another nonce": st.just(True),
        "upper case": st.just(True),
    },
)
WHICH = st.sampled_from(["", "right", "wrong"])


def flawed_proof(room, speaker, joiner, hn: str, flaws: dict) -> dict:
    ids = (HOST_ID, speaker.me) if "ids swapped" in flaws else (speaker.me, HOST_ID)
    said = Transcript(
        "sha-256 00" if "another binding" in flaws else speaker.binding,
        *ids,
        joiner.nonce,
        "B" * 22 if "another nonce" in flaws else hn,
    )
    role = "host" if "role of the host" in flaws else "join"
    proofs = {}
    if joiner.key:
        proofs["kp"] = said.prove(role, "key", joiner.key)
    if joiner.come_back_pass:
        proofs["pp"] = said.prove(role, "pass", pass_hash(joiner.come_back_pass))
    if "upper case" in flaws:
        proofs = {name: proof.upper() for name, proof in proofs.items()}
    return {"t": "auth-proof", "jn": joiner.nonce, **proofs}


@settings(max_examples=25, suppress_health_check=list(HealthCheck), deadline=None)
@given(key=WHICH, come_back=WHICH, flaws=FLAWS, waits=st.booleans())
def test_proofs_of_every_mix(room, key, come_back, flaws, waits):
    """Whoever proves a right secret without a flaw is in; nobody else is."""
    mix = {"key": key, "come_back_pass": come_back}
    speaker = room.call()
    joiner = room.joiner(
        speaker, **held(room, {kind: which for kind, which in mix.items() if which})
    )
    speaker.say(changed(HELLO | joiner.hello_fields(), {"join": 1 if waits else None}))
    hn = speaker.until("auth")["hn"]
    joiner.answer(parse({"t": "auth", "v": 1, "hn": hn}), speaker.binding)
    speaker.say(flawed_proof(room, speaker, joiner, hn, flaws))
    proves = "right" in (key, come_back) and not flaws
    via = "in by pass" if come_back == "right" else "in by key"
    expected = via if proves else ("lobby" if waits else "bye")
    check(room, speaker, joiner, speaker.until(*OUTCOMES), expected)
    speaker.close()


def test_a_replayed_proof_lets_nobody_in(room):
    first = room.call()
    joiner, message = prove(room, first, key=room.key)
    assert outcome(message) == "in by key"
    first.close()
    proof = to_map_of_proof(joiner, first)
    again = room.call(first.me)
    again.say(HELLO | {"join": 1} | joiner.hello_fields())
    again.until("auth")
    again.say(proof)
    assert outcome(again.until(*OUTCOMES)) == "lobby"
    again.close()


def to_map_of_proof(joiner: Joiner, speaker: Speaker) -> dict:
    """The proof that a joiner gave on its link."""
    hn = speaker.said("auth")[0]["hn"]
    return flawed_proof(None, speaker, joiner, hn, {})


def test_a_proof_counts_once_and_on_time(room):
    """Before the challenge, a second time, and after the decision it is nothing."""
    speaker = room.call()
    joiner = room.joiner(speaker, key=room.key)
    early = {"t": "auth-proof", "jn": joiner.nonce, "kp": "0" * 64}
    speaker.say(early, HELLO | {"join": 1} | joiner.hello_fields())
    hn = speaker.until("auth")["hn"]
    right = flawed_proof(room, speaker, joiner, hn, {})
    speaker.say(right | {"kp": "0" * 64}, right)
    assert outcome(speaker.until(*OUTCOMES)) == "lobby"
    speaker.say(right, HELLO | {"join": 1}, {"t": "ping", "ts": 1})
    speaker.until("pong")
    assert not speaker.said("admit", "roster", "bye")
    assert len(speaker.said("auth")) == 1
    speaker.close()


def test_what_a_device_that_is_in_says_of_proofs_changes_nothing(room):
    speaker = room.call()
    joiner, _ = prove(room, speaker, key=room.key)
    speaker.until("roster")
    speaker.say(to_map_of_proof(joiner, speaker), HELLO | joiner.hello_fields())
    speaker.say({"t": "ping", "ts": 1})
    speaker.until("pong")
    assert len(speaker.said("admit")) == len(speaker.said("auth")) == 1
    assert not speaker.said("bye")
    speaker.close()


def test_a_description_with_several_fingerprints_proves_nothing(room):
    """The engine takes the first and forgets the other, with which somebody might come."""
    other = "a=fingerprint:sha-256 " + ":".join(["AB"] * 32) + "\r\n"

    room.between.rewrites_sdp = lambda sdp: re.sub(r"a=fingerprint:.*\r\n", r"\g<0>" + other, sdp)
    try:
        speaker = room.call()
        joiner, message = prove(room, speaker, key=room.key)
    finally:
        room.between.rewrites_sdp = lambda sdp: sdp
    check(room, speaker, joiner, message, "lobby")
    speaker.close()


# ---- older devices ------------------------------------------------------------------------------


@pytest.mark.parametrize("shows", ["key", "pass"])
def test_an_older_device_that_shows_its_secret_waits(room, shows):
    secret = {"key": room.key, "pass": room.passes[0]}[shows]
    speaker = room.call()
    speaker.say(HELLO | {"join": 1, shows: secret})
    assert outcome(speaker.until(*OUTCOMES)) == "lobby"
    beside = room.call()  # a raw secret beside proof fields is never read
    beside.say(HELLO | {"join": 1, "auth": 1, "jc": commitment("n" * 22), shows: secret})
    beside.until("auth")
    beside.say({"t": "auth-proof", "jn": "n" * 22})
    assert outcome(beside.until(*OUTCOMES)) == "lobby"
    room.host.until("counts for nothing here")
    speaker.close()
    beside.close()


def test_a_host_takes_raw_secrets_when_its_person_said_so(older):
    older.host.until("--take-older-devices")
    speaker = older.call()
    speaker.say(HELLO | {"join": 1, "key": older.key})
    admit = speaker.until(*OUTCOMES)
    assert (admit["t"], admit.get("via"), admit["mk"]) == ("admit", None, older.mesh_key)
    older.host.until("older device")
    again = older.call()
    again.say(HELLO | {"name": "again", "pass": admit["pass"]})
    assert again.until(*OUTCOMES)["t"] == "admit"
    for shown in ({"key": WRONG}, {"pass": WRONG}, {"auth": 1, "jc": 5}):
        wrong = older.call()
        wrong.say(HELLO | {"join": 1} | shown)
        assert wrong.until(*OUTCOMES)["t"] == "lobby"
        wrong.close()
    joiner, message = prove(older, older.call(), key=older.key)
    assert outcome(message) == "in by key"
    assert joiner.judge(parse(message)) == "verified"


# ---- the device's side --------------------------------------------------------------------------

KEY, PASS = "k" * 22, "p" * 22
HOST_HELLO = {"t": "hello", "name": "attic", "v": 4, "auth": 1, "gate": 1, "ask": 1}
JOINED = "Joined as cellar."


def says(*messages: dict, on: str, hello: dict | None = None):
    """A host that greets, and says something when it hears a type of message."""

    def host(speaker: Speaker) -> None:
        if hello is not None:
            speaker.say(hello)

        def heard(speaker, message) -> None:
            if message["t"] == on:
                speaker.say(*messages)
            elif message["t"] == "hello" and on == "auth-proof":
                speaker.say({"t": "auth", "v": 1, "hn": "h" * 22})

        speaker.on_message = heard

    return host


def honest(speaker: Speaker) -> None:
    """A host that knows the key, and asks a second time for a proof."""

    def heard(speaker, message) -> None:
        if message["t"] == "hello":
            speaker.say(
                {"t": "auth", "v": 1, "hn": "h" * 22}, {"t": "auth", "v": 1, "hn": "i" * 22}
            )
        elif message["t"] == "auth-proof":
            ids = (speaker.other, speaker.me)
            said = Transcript(speaker.binding, *ids, message["jn"], "h" * 22)
            assert said.checks("join", "key", KEY, message["kp"])
            proof = said.prove("host", "key", KEY)
            speaker.say(to_map(Admit(via="key", hp=proof, mk="m" * 43, pass_=PASS)))

    speaker.on_message = heard
    speaker.say(HOST_HELLO)


def admits(**fields) -> dict:
    return says({"t": "admit", **fields}, on="auth-proof", hello=HOST_HELLO)


AT_ONCE = {"hello": HOST_HELLO, "on": "hello"}
HOSTS = {
    "proves the key back": (honest, JOINED),
    "proves nothing back": (admits(mk="m" * 43), UNVERIFIED),
    "an unknown via": (admits(via="door", hp="0" * 64), UNVERIFIED),
    "a wrong proof": (admits(via="key", hp="0" * 64), SOMEONE_BETWEEN),
    "no proof": (admits(via="key"), SOMEONE_BETWEEN),
    "a pass it was not shown": (admits(via="pass", hp="0" * 64), SOMEONE_BETWEEN),
    "asks for no proof": (says({"t": "admit", "mk": "m" * 43}, **AT_ONCE), UNVERIFIED),
    "claims a proof it did not ask for": (
        says({"t": "admit", "via": "key", "hp": "0" * 64}, **AT_ONCE),
        SOMEONE_BETWEEN,
    ),
    "from before the gate": (says(on="", hello={"t": "hello", "v": 4}), UNVERIFIED),
    "from before the proofs": (says(on="", hello={"t": "hello", "v": 4, "gate": 1}), UNVERIFIED),
    "refuses": (says({"t": "bye", "reason": "The room is full."}, **AT_ONCE), "The room is full."),
}


@pytest.mark.parametrize(("host", "sentence"), HOSTS.values(), ids=HOSTS)
def test_a_device_with_a_link_goes_in_only_where_the_key_is_known(tmp_path, host, sentence):
    with signaling_between() as between:
        speakers = []
        between.impostors[HOST_ID] = lambda speaker: (speakers.append(speaker), host(speaker))
        env = {
            "POOLHOUSE_STATE": str(tmp_path),
            "POOLHOUSE_ROOM": f"{between.url}r/{CODE}#k={KEY}",
        }
        device = Program.start("join", "--name", "cellar", env=env)
        try:
            if sentence == JOINED:
                device.until(JOINED)
            else:
                assert device.end() == 1
            assert sentence in " ".join(device.stderr.split())
        finally:
            device.kill()
        assert len(speakers[0].said("auth-proof")) <= 1
        assert not any({"key", "pass"} & message.keys() for message in speakers[0].heard)
        assert KEY.encode() not in between.everything()
        assert pass_id(pass_hash(KEY)).encode() not in between.everything()
