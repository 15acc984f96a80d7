"""A signaling server in the middle, and real programs: who gets in, and what it learns."""

import base64
import hashlib
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from poolhouse_node.device.entrance import SOMEONE_BETWEEN, UNVERIFIED
from poolhouse_node.rtc.connection import STRIPE_LABEL
from tests.support.program import Program, run
from tests.support.signaling_between import (
    Seen,
    SignalingBetween,
    passes_on,
    signaling_between,
)

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(120)]

CODE = "4TKG9P"
HOST_ID = f"pooled-room-{CODE}"


@pytest.fixture
def between():
    with signaling_between() as server:
        yield server


@pytest.fixture
def start(between, tmp_path):
    """Start a program at the server in the middle, with a state folder of its own."""
    programs = []

    def start(*arguments: str, state: str = "device", **env: str) -> Program:
        env = {"POOLHOUSE_STATE": str(tmp_path / state), "POOLHOUSE_SIGNAL": between.url, **env}
        programs.append(Program.start(*arguments, env=env))
        return programs[-1]

    yield start
    for program in programs:
        program.kill()


@pytest.fixture
def open_room(start):
    """Start a host; the program and its link."""

    def open_room(*options: str) -> tuple[Program, str]:
        host = start("host", "--code", CODE, "--name", "attic", *options, state="host")
        host.until("poolhouse join '")
        return host, re.search(r"poolhouse join '([^']+)'", host.stderr)[1]

    return open_room


@pytest.fixture
def room(tmp_path):
    """Run a command of the host's person."""
    return lambda *command: run("room", *command, env={"POOLHOUSE_STATE": str(tmp_path / "host")})


def spellings(secret: str) -> list[bytes]:
    """How a secret could have been written, and what stands for it as a key of proofs."""
    data = base64.urlsafe_b64decode(secret + "=" * (-len(secret) % 4))
    text = secret.encode()
    return [
        text,
        data,
        data.hex().encode(),
        data.hex().upper().encode(),
        text.hex().encode(),
        base64.b64encode(data).rstrip(b"="),
        base64.b64encode(text).rstrip(b"="),
        hashlib.sha256(text).hexdigest().encode(),
        hashlib.sha256(text).digest(),
    ]


def knows(between: SignalingBetween, secret: str) -> bool:
    everything = between.everything()
    return any(spelling in everything for spelling in spellings(secret))


def secrets_of(tmp_path: Path) -> dict[str, str]:
    """Invite key, mesh key and passes of the test's room, from where programs keep them."""
    folder = tmp_path / "host" / "rooms" / CODE
    kept = json.loads((folder / "gate.json").read_text())
    found = {"key": kept["key"], "mesh key": kept["mesh_key"]}
    for number, path in enumerate(sorted(tmp_path.glob(f"*/rooms/{CODE}/pass-*.json"))):
        found[f"pass {number}"] = json.loads(path.read_text())["pass"]
    return found


def learned(between: SignalingBetween, tmp_path: Path) -> list[str]:
    """Which secrets of the room the server saw."""
    return [name for name, secret in secrets_of(tmp_path).items() if knows(between, secret)]


def digits(program: Program, words: str) -> str:
    program.until(words)
    return re.search(re.escape(words) + r".*?(\d{3} \d{3})\b", program.stderr)[1]


@pytest.mark.parametrize("swaps", [False, True], ids=["honest", "in the middle"])
def test_the_digits_of_a_typed_code_differ_only_with_someone_between(
    between, start, open_room, room, tmp_path, swaps
):
    host, _ = open_room("--wait", "9")
    between.swaps = lambda introduction: swaps
    device = start("join", CODE, "--name", "cellar")
    on_device = digits(device, "Both screens must show")
    on_host = digits(host, "? cellar")
    assert (on_device == on_host) is not swaps
    assert learned(between, tmp_path) == []
    if swaps:
        assert room("deny", "cellar").process.returncode == 0
        assert device.end() == 1
        assert "cellar joined" not in host.stderr
    else:
        assert room("allow", on_device).process.returncode == 0
        device.until("Joined as cellar.")
    assert learned(between, tmp_path) == []


# ---- a device that holds a link or a pass -------------------------------------------------------


def admits_by_itself(seen: Seen):
    if seen.type == "auth-proof":
        return [(False, {"t": "admit", "mk": "m" * 43, "pass": "p" * 22})]
    return passes_on(seen)


def sends_the_proof_back(seen: Seen):
    if seen.type == "auth-proof":
        via = "key" if "kp" in seen.message else "pass"
        proof = seen.message["kp" if via == "key" else "pp"]
        return [(False, {"t": "admit", "via": via, "hp": proof, "mk": "m" * 43})]
    return passes_on(seen)


def claims_a_proof(seen: Seen):
    if seen.type == "auth-proof":
        return [(False, {"t": "admit", "via": "pass", "hp": "0" * 64, "mk": "m" * 43})]
    return passes_on(seen)


def without(*names: str):
    """Takes fields out of the hellos of the host, as if it were older."""

    def attack(seen: Seen):
        if seen.type == "hello" and seen.src == HOST_ID:
            kept = {name: value for name, value in seen.message.items() if name not in names}
            return [(True, kept)]
        return passes_on(seen)

    return attack


def makes_the_device_older(seen: Seen):
    if seen.type == "hello" and seen.src != HOST_ID:
        dropped = {"auth", "jc", "kc", "pid"}
        kept = {name: value for name, value in seen.message.items() if name not in dropped}
        return [(True, kept)]
    return passes_on(seen)


def asks_with_its_own_nonce(seen: Seen):
    if seen.type == "auth":
        return [(True, {"t": "auth", "v": 1, "hn": "A" * 22})]
    return passes_on(seen)


DENIED = "did not let this device in"
ATTACKS = {
    "carries everything": (passes_on, DENIED),
    "admits by itself": (admits_by_itself, UNVERIFIED),
    "sends the proof back": (sends_the_proof_back, SOMEONE_BETWEEN),
    "claims a proof": (claims_a_proof, SOMEONE_BETWEEN),
    "a host from before the gate": (without("gate", "auth"), UNVERIFIED),
    "a host from before the proofs": (without("auth"), UNVERIFIED),
    "a device from before the proofs": (makes_the_device_older, DENIED),
    "its own nonce": (asks_with_its_own_nonce, DENIED),
}


def told(program: Program) -> str:
    """What it said, without the terminal's line breaks."""
    return " ".join(program.stderr.split())


@dataclass
class ClosedRoom:
    """A room that asks nobody, the server in the middle, and a device with a pass."""

    between: SignalingBetween
    host: Program
    link: str
    folder: Path

    def join(self, holds: str) -> Program:
        env = {"POOLHOUSE_STATE": str(self.folder / holds), "POOLHOUSE_SIGNAL": self.between.url}
        env["POOLHOUSE_ROOM"] = self.link if holds == "a link" else CODE
        return Program.start("join", "--name", "cellar", env=env)


@pytest.fixture(scope="module")
def closed(tmp_path_factory):
    folder = tmp_path_factory.mktemp("closed")
    with signaling_between() as between:
        env = {"POOLHOUSE_STATE": str(folder / "host"), "POOLHOUSE_SIGNAL": between.url}
        host = Program.start("host", "--code", CODE, "--deny-unknown", "--wait", "9", env=env)
        try:
            host.until("poolhouse join '")
            link = re.search(r"poolhouse join '([^']+)'", host.stderr)[1]
            room = ClosedRoom(between, host, link, folder)
            first = room.join("a link")
            first.until("Joined as cellar.")
            first.interrupt()
            first.end()
            (folder / "a link").rename(folder / "a pass")
            host.until("- cellar")
            yield room
        finally:
            host.kill()


@pytest.mark.parametrize(("attack", "sentence"), ATTACKS.values(), ids=ATTACKS)
@pytest.mark.parametrize("holds", ["a link", "a pass"])
def test_whoever_holds_a_secret_leaves_and_gives_nothing_away(closed, attack, sentence, holds):
    between, already = closed.between, len(closed.between.middle)
    between.swaps, between.attack = lambda introduction: True, attack
    device = closed.join(holds)
    try:
        assert device.end() == 1
    finally:
        device.kill()
    assert sentence in told(device)
    assert "Joined" not in device.stderr
    assert len(between.middle) == already + 1
    assert closed.host.stderr.count("+ cellar") == 1
    assert learned(between, closed.folder) == []
    assert len(secrets_of(closed.folder)) == 3


def test_a_person_who_lets_the_stranger_in_gives_no_key_away_and_gets_no_device(
    between, start, open_room, room, tmp_path
):
    """Also shows that what a stranger does learn would be found."""
    host, link = open_room("--wait", "9")
    between.swaps = lambda introduction: True
    device = start("join", "--name", "cellar", POOLHOUSE_ROOM=link)
    host.until("? cellar")
    assert "did not check out" in host.stderr
    assert digits(host, "? cellar") != digits(device, "Both screens must show")
    assert learned(between, tmp_path) == []
    assert room("allow", "cellar").process.returncode == 0
    assert device.end() == 1
    assert UNVERIFIED in told(device)
    assert learned(between, tmp_path) == ["mesh key"]


# ---- links inside the room ----------------------------------------------------------------------


def test_a_link_between_workers_that_ends_at_somebody_else_is_not_used(
    between, start, open_room, room, tmp_path
):
    host, link = open_room("--wait", "2", "--split", "10,10,10")
    between.swaps = lambda introduction: introduction.dst != HOST_ID
    for name in ("cellar", "den"):
        start("join", "--name", name, POOLHOUSE_ROOM=link, state=name).until(f"Joined as {name}.")
    between.until(lambda: len(between.said("mesh")) >= 2)
    between.until(lambda: any(near.closed or far.closed for near, far in between.middle))
    between.until(lambda: len(between.middle) >= 2)  # it was dialed again
    assert room("status", "--json").json()["state"] != "online"
    assert {seen.type for seen in between.seen if seen.where == "main"} <= {
        "hello",
        "mesh",
        "ping",
        "pong",
        "leaving",
    }
    assert [seen for seen in between.seen if seen.where == "wire"] == []
    assert "is online" not in host.stderr
    assert learned(between, tmp_path) == []


def test_stripes_that_end_at_somebody_else_carry_nothing(between, start, open_room, tmp_path):
    _, link = open_room("--max-tokens", "20")
    between.swaps = lambda introduction: introduction.label == STRIPE_LABEL
    start("join", "--name", "cellar", POOLHOUSE_ROOM=link).until("is online")
    asked = start("ask", link, "What is a pool?", "--json", state="guest")
    assert asked.end() == 0
    assert asked.json()["answer"]
    assert {seen.type for seen in between.seen if seen.where == "main"} == {"mesh"}
    assert [seen for seen in between.seen if seen.where == "wire"] == []
    assert learned(between, tmp_path) == []


# ---- replays and forged names -------------------------------------------------------------------


def test_a_proof_is_worth_nothing_on_another_link(between, start, open_room, tmp_path):
    host, link = open_room("--deny-unknown", "--wait", "9")
    between.swaps = lambda introduction: True
    start("join", "--name", "cellar", POOLHOUSE_ROOM=link).end()
    hello = next(seen for seen in between.said("hello") if seen.dst == HOST_ID)
    proof = between.said("auth-proof")[0].message
    for src in (hello.src, "somebody-else"):
        again = between.call(src, HOST_ID)
        again.say(hello.message, proof)  # also before it is asked for
        again.until("auth")
        again.say(proof)
        again.until("bye")
        again.until_closed()
        assert not again.said("admit", "roster")
    assert "joined" not in host.stderr
    assert learned(between, tmp_path) == []


def test_offers_sent_again_bring_nobody_in(between, start, open_room, room):
    _, link = open_room("--wait", "9")
    device = start("join", "--name", "cellar", POOLHOUSE_ROOM=link)
    device.until("Joined as cellar.")
    for introduction in list(between.introductions):
        between.replay(introduction)
    friend = start("join", "--name", "friend", POOLHOUSE_ROOM=link, state="friend")
    friend.until("Joined as friend.")
    names = [each["name"] for each in room("status", "--json").json()["devices"]]
    assert names == ["attic", "cellar", "friend"]
    assert device.process.poll() is None


def test_nobody_gets_in_by_the_name_of_another(between, start, open_room, room, tmp_path):
    _, link = open_room("--deny-unknown", "--wait", "9")
    devices = {}
    for name in ("cellar", "den"):
        device = start("join", "--name", name, POOLHOUSE_ROOM=link, state=name)
        device.until(f"Joined as {name}.")
        devices[name] = between.introductions[-1].src
        between.until(lambda: [i.label for i in between.introductions].count(STRIPE_LABEL) % 3 == 0)
    hello = {"t": "hello", "name": "host", "v": 4, "auth": 1}

    as_host = between.call(HOST_ID, devices["cellar"])
    as_host.say(hello, {"t": "admit", "mk": "m" * 43}, {"t": "roster", "members": []})
    as_host.until_closed()
    assert as_host.heard == []

    as_worker = between.call(devices["den"], devices["cellar"])
    as_worker.say(hello, {"t": "mesh", "v": 1, "p": "0" * 64})
    as_worker.until_closed()
    assert {message["t"] for message in as_worker.heard} <= {"hello", "mesh", "ping"}

    as_stripe = between.call(devices["den"], HOST_ID, STRIPE_LABEL)
    as_stripe.say({"t": "mesh", "v": 1, "none": 1})
    as_stripe.until_closed()
    assert {message["t"] for message in as_stripe.heard} == {"mesh"}

    names = [each["name"] for each in room("status", "--json").json()["devices"]]
    assert names == ["attic", "cellar", "den"]

    as_device = between.call(devices["den"], HOST_ID)
    as_device.say({**hello, "name": "den", "join": 1, "back": 1})
    as_device.until("bye")
    assert not as_device.said("admit", "roster", "lobby")
    assert learned(between, tmp_path) == []


def test_a_device_that_is_made_to_come_back_does_so_to_its_host_only(
    between, start, open_room, room, tmp_path
):
    """Somebody takes its place at the host, and stands between when it dials again."""
    host, _ = open_room("--wait", "9")
    device = start("join", CODE, "--name", "cellar")
    assert room("allow", digits(device, "Both screens must show")).process.returncode == 0
    device.until("Joined as cellar.")
    between.swaps, between.attack = lambda introduction: True, admits_by_itself
    instead = between.call(between.introductions[0].src, HOST_ID)
    instead.say({"t": "hello", "name": "cellar", "v": 4, "back": 1})
    instead.until("bye")
    assert device.end() == 1
    assert UNVERIFIED in told(device)
    assert not between.said("roster")
    assert host.stderr.count("+ cellar") == 1
    assert learned(between, tmp_path) == []
    devices = room("status", "--json").json()["devices"]
    assert [each["name"] for each in devices] == ["attic"]
