"""The binding of proofs, against the public implementation's own answers."""

import pytest

from poolhouse_node.rtc.binding import binding_of, fingerprint_of
from tests.support.vectors import cases, vectors

FINGERPRINTS = vectors("auth")["fingerprints"]


@pytest.mark.parametrize("case", cases(FINGERPRINTS))
def test_the_fingerprint_of_a_description(case):
    assert fingerprint_of(case["sdp"]) == (case["one"] or None)


def test_both_ends_make_the_same_text():
    one, two = (f"v=0\r\na=fingerprint:sha-256 {digits}\r\n" for digits in ("BB:02", "AA:01"))
    assert binding_of(one, two) == binding_of(two, one) == "sha-256 aa:01,sha-256 bb:02"
    assert binding_of(one, one) == "sha-256 bb:02"


def test_an_end_without_a_fingerprint_binds_nothing():
    one = "a=fingerprint:sha-256 AA:01\n"
    assert binding_of(one, None) == binding_of(one, "v=0") == binding_of(None, None) == ""
