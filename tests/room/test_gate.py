"""The gate against every vector, and what must hold for any device."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.room.gate import PASSES_MAX, REFUSALS, Gate
from poolhouse_node.room.joining import Joiner
from poolhouse_node.room.proofs import Transcript, pass_hash
from poolhouse_node.wire.errors import WireError
from poolhouse_node.wire.messages import parse
from poolhouse_node.wire.messages.joining import AuthProof, Hello
from tests.support.vectors import cases, vectors

AUTH = vectors("auth")
REASONS = {"OLD_TAB": "too-old", "DENIED": "denied", "FULL": "full", "UNVERIFIED": "unverified"}


def counting(start: int = 0):
    numbers = itertools.count(start)
    return lambda count: next(numbers).to_bytes(count)


def gate_of(saved: dict, **more) -> Gate:
    passes = {pass_hash(each): "otter" for each in saved["passes"]}
    key = saved["key"]
    return Gate(counting(), asks=saved["ask"], key=key, passes=passes, **more)


def check(decision, expect: dict) -> None:
    assert decision.kind == expect["kind"]
    assert decision.via == expect.get("via")
    assert decision.gives_pass is expect["gives_pass"]
    assert decision.reason == REASONS.get(expect.get("reason"))


@pytest.mark.parametrize("case", cases(AUTH["gate"]))
def test_devices_of_before_the_proofs(case):
    saved = case["gate"]
    gate = gate_of(
        saved,
        takes_raw_secrets=saved["legacy"],
        denied=set(saved["denied"]),
        waiting=dict.fromkeys([*saved["waiting"], *map(str, range(saved["lobby"]))], "x"),
    )
    decision = gate.on_hello(case["id"], parse({"t": "hello", **case["hello"]}))
    check(decision, case)
    assert decision.showed_raw_secret is (case.get("legacy") or case.get("old_raw") or False)


def read_proof(message: dict) -> AuthProof | None:
    try:
        return parse(message)
    except WireError:
        return None


@pytest.mark.parametrize("case", cases(AUTH["exchanges"]))
def test_exchanges(case):
    host, device = case["host"], case["joiner"]
    gate = gate_of(host, mesh_key=host["mesh_key"])
    hello = parse(case["hello"])
    assert gate.challenge(hello)

    joiner = Joiner(
        counting(), device["id"], host["id"], device["key"] or "", device["pass"] or "",
        nonce=device["nonce"],
    )  # fmt: skip
    answer = joiner.answer(parse(case["auth"]), device["binding"])
    assert joiner.digits == case["joiner_sas"]
    proof = read_proof(case["auth_proof"])
    if proof is not None and proof.jn == answer.jn:
        assert (proof.kp, proof.pp) == (answer.kp, answer.pp)

    said = Transcript(
        host["binding"], device["id"], host["id"], proof.jn if proof else "", case["auth"]["hn"]
    )
    decision = gate.on_proof(hello, proof, said)
    check(decision, case["decision"])
    assert decision.announced_in_vain is case["decision"]["failed"]
    assert decision.digits == case["decision"]["sas"]

    if decision.kind == "admit":
        sent = gate.admit_message(decision, said, "otter")
        assert sent.mk == host["mesh_key"]
        assert (sent.pass_ is not None) is decision.gives_pass
        untampered = case["joiner_verdict"] == "ok" or "ask off" in case["name"]
        if untampered:
            assert (sent.via, sent.hp) == (case["admit"].get("via"), case["admit"].get("hp"))
    if case["admit"] is not None:
        verdict = joiner.judge(parse(case["admit"]))
        said_of_it = {
            "verified": "ok",
            "nothing-proved": "ok",
            "unverified": "tofu",
            "wrong": "bad",
        }
        assert said_of_it[verdict] == case["joiner_verdict"]


def joiner_for(gate: Gate, **holds) -> Joiner:
    return Joiner(counting(1 << 40), "joiner", "host", **holds)


def meet(gate: Gate, joiner: Joiner, *, at_host: str = "link", at_joiner: str = "link"):
    """One exchange; what each end decides."""
    hello = Hello(v=4, join=1, **joiner.hello_fields())
    host_nonce = gate.challenge(hello)
    proof = joiner.answer(parse({"t": "auth", "v": 1, "hn": host_nonce}), at_joiner)
    said = Transcript(at_host, joiner.my_id, joiner.host_id, proof.jn, host_nonce)
    decision = gate.on_proof(hello, proof, said)
    if decision.kind != "admit":
        return decision, None, None
    admit = gate.admit_message(decision, said, "otter")
    return decision, admit, joiner.judge(admit)


def test_a_key_gives_a_pass_and_the_pass_brings_back():
    gate = Gate(counting())
    _, admit, verdict = meet(gate, joiner_for(gate, key=gate.key))
    assert verdict == "verified"
    decision, again, verdict = meet(gate, joiner_for(gate, come_back_pass=admit.pass_))
    assert (decision.via, verdict) == ("pass", "verified")
    assert again.pass_ is None


def test_a_new_key_kills_the_old_links_and_no_pass():
    gate = Gate(counting())
    old = gate.key
    _, admit, _ = meet(gate, joiner_for(gate, key=old))
    assert gate.renew_key() != old
    assert meet(gate, joiner_for(gate, key=old))[0].kind == "ask"
    assert meet(gate, joiner_for(gate, come_back_pass=admit.pass_))[0].kind == "admit"


def test_the_gate_survives_a_restart():
    gate = Gate(counting())
    _, admit, _ = meet(gate, joiner_for(gate, key=gate.key))
    state = gate.state()
    saved = {
        "asks": state.asks,
        "key": state.key,
        "mesh_key": state.mesh_key,
        "passes": state.passes,
    }
    restored = Gate.restore(counting(), saved)
    assert restored.state() == state
    assert meet(restored, joiner_for(restored, come_back_pass=admit.pass_))[2] == "verified"


@pytest.mark.parametrize(
    "saved",
    [{}, {"key": 5, "mesh_key": None, "passes": []}, {"passes": {"x": "y", "A" * 64: "z"}}],
)
def test_a_broken_state_gives_a_sound_gate(saved):
    gate = Gate.restore(counting(), saved)
    assert gate.asks
    assert gate.passes == {}
    assert meet(gate, joiner_for(gate, key=gate.key))[2] == "verified"


def test_passes_are_bounded_and_the_oldest_goes_first():
    gate = Gate(counting())
    first = meet(gate, joiner_for(gate, key=gate.key))[1].pass_
    for _ in range(PASSES_MAX):
        meet(gate, joiner_for(gate, key=gate.key))
    assert len(gate.passes) == PASSES_MAX
    assert pass_hash(first) not in gate.passes


def test_the_lobby():
    gate = Gate(counting())
    for number in range(8):
        gate.wait(str(number), "otter")
    hello = Hello(v=4, join=1)
    assert gate.on_hello("late", hello).reason == "full"
    assert gate.allow("0").gives_pass
    assert gate.on_hello("late", hello).kind == "ask"
    assert gate.deny("1").reason == "denied"
    assert gate.on_hello("1", hello).reason == "denied"
    assert gate.withdraw("2")
    assert not gate.withdraw("2")


def test_an_api_client_gets_no_mesh_key():
    gate = Gate(counting(), asks=False)
    decision = gate.on_hello("api", Hello(v=4, join=1))
    assert gate.admit_message(decision, None, "api", is_api=True).mk is None


def test_every_refusal_has_its_words():
    assert all(len(words) > 20 for words in REFUSALS.values())


def test_secrets_do_not_show_in_what_is_printed():
    gate = Gate(counting())
    joiner = joiner_for(gate, key=gate.key)
    decision, _, _ = meet(gate, joiner)
    for shown in (decision, joiner, gate, gate.state()):
        assert gate.key not in repr(shown)
        assert gate.mesh_key not in repr(shown)


secrets = st.sampled_from(["", "right", "wrong"])


@given(key=secrets, come_back=secrets, between=st.booleans(), asks=st.booleans())
def test_who_proves_nothing_is_never_verified(key, come_back, between, asks):
    """Any mix of right, wrong and no secrets, with and without somebody in the middle."""
    gate = Gate(counting(), asks=asks)
    good_pass = meet(gate, joiner_for(gate, key=gate.key))[1].pass_
    held = {
        "key": {"right": gate.key, "wrong": "w" * 22, "": ""}[key],
        "come_back_pass": {"right": good_pass, "wrong": "x" * 22, "": ""}[come_back],
    }
    joiner = joiner_for(gate, **held)
    at_host = "another link" if between else "link"
    decision, _, verdict = meet(gate, joiner, at_host=at_host)
    proves = "right" in (key, come_back) and not between
    assert (decision.via in {"key", "pass"}) is proves
    assert decision.kind == ("admit" if proves or not asks else "ask")
    assert (verdict == "verified") is proves
