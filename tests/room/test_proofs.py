"""Proofs against every vector."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from poolhouse_node.room.proofs import (
    Transcript,
    commitment,
    is_hex_digest,
    is_mesh_key,
    is_nonce,
    is_pass_id,
    make_mesh_key,
    make_secret,
    mesh_proof,
    pass_hash,
    pass_id,
    six_digits,
    speaks_proofs,
)
from tests.support.vectors import cases, vectors

AUTH = vectors("auth")
FORMS = {
    "nonce": is_nonce,
    "key or pass": is_nonce,
    "mesh key": is_mesh_key,
    "proof": is_hex_digest,
    "pass id": is_pass_id,
}


@pytest.mark.parametrize("case", cases(AUTH["encoding"], "text"))
def test_random_bytes_as_text(case):
    make = make_mesh_key if case["what"] == "mesh key" else make_secret
    assert make(lambda count: bytes.fromhex(case["bytes"])[:count]) == case["text"]


@pytest.mark.parametrize("case", cases(AUTH["validity"], "value"))
def test_what_is_valid(case):
    assert FORMS[case["kind"]](case["value"]) is case["valid"]


@pytest.mark.parametrize("case", cases(AUTH["hashes"], "what"))
def test_hashes(case):
    match case["what"]:
        case "commit":
            assert commitment(case["nonce"]) == case["hex"]
        case "pass secret":
            assert pass_hash(case["pass"]) == case["hex"]
        case "pass id":
            assert pass_id(case["pass_hash"]) == case["hex"]


def transcript(fields: dict) -> Transcript:
    return Transcript(
        fields["binding"], fields["joiner"], fields["host"], fields["jn"], fields["hn"]
    )


@pytest.mark.parametrize("case", cases(AUTH["proofs"]))
def test_proofs(case):
    fields = case["fields"]
    assert transcript(fields).text(fields["role"], fields["cred"]) == case["transcript"]
    proof = transcript(fields).prove(fields["role"], fields["cred"], case["secret"])
    assert proof == case["hex"]


@pytest.mark.parametrize("case", cases(AUTH["checks"]))
def test_which_proofs_check(case):
    fields = case["fields"]
    checked = transcript(fields).checks(
        fields["role"], fields["cred"], case["secret"], case["proof"]
    )
    assert checked is case["accepted"]


@pytest.mark.parametrize("case", cases(AUTH["sas"], "digits"))
def test_six_digits(case):
    assert six_digits(case["binding"], case["jn"], case["hn"]) == case["digits"]


@pytest.mark.parametrize("case", cases(AUTH["mesh"], "role"))
def test_mesh_proofs(case):
    proof = mesh_proof(
        case["mesh_key"], case["role"], case["binding"], case["dialer"], case["acceptor"]
    )
    assert proof == case["hex"]


@pytest.mark.parametrize("case", cases(AUTH["mesh_checks"]))
def test_which_mesh_proofs_check(case):
    expected = mesh_proof(
        case["mesh_key"],
        case["expected_role"],
        case["binding"],
        case["dialer"],
        case["acceptor"],
    )
    assert (expected == case["proof"]) is case["accepted"]


@pytest.mark.parametrize("case", cases(AUTH["speaks"]))
def test_who_speaks_the_proofs(case):
    auth = case["hello"].get("auth")
    auth = int(auth) if isinstance(auth, str) else auth  # the wire reads numeric text as a number
    assert speaks_proofs(auth, case["hello"].get("jc")) is case["speaks_proofs"]


def test_nothing_checks_without_a_binding():
    loose = Transcript("", "a", "b", "A" * 22, "B" * 22)
    assert not loose.checks("join", "key", "k" * 22, loose.prove("join", "key", "k" * 22))


ids = st.text("abcdef-0123456789", min_size=1, max_size=40)


@given(ids, ids, ids, ids, st.sampled_from(["join", "host"]), st.sampled_from(["key", "pass"]))
def test_a_proof_holds_for_its_own_link_only(binding, joiner, host, other, role, credential):
    nonces = "A" * 22, "B" * 22
    mine = Transcript(binding, joiner, host, *nonces)
    proof = mine.prove(role, credential, "s" * 22)
    assert mine.checks(role, credential, "s" * 22, proof)
    elsewhere = Transcript(other, joiner, host, *nonces)
    assert elsewhere.checks(role, credential, "s" * 22, proof) == (other == binding)
    assert not mine.checks("host" if role == "join" else "join", credential, "s" * 22, proof)
    assert not mine.checks(role, credential, "t" * 22, proof)
