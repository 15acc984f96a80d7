"""The mesh proof: every row of its table of verdicts."""

import pytest

from poolhouse_node.room.mesh import MeshGreeting, MeshKey
from poolhouse_node.wire.messages.joining import Mesh

KEY, OTHER = "k" * 43, "o" * 43


def ends(*, dialer: MeshKey, acceptor: MeshKey, bindings=("link", "link")):
    """Both ends of one association."""
    return (
        MeshGreeting(dialer, peer_id="b", my_id="a", dialed=True, binding=bindings[0]),
        MeshGreeting(acceptor, peer_id="a", my_id="b", dialed=False, binding=bindings[1]),
    )


def test_two_ends_with_the_key_accept_each_other():
    one, two = ends(dialer=MeshKey(KEY), acceptor=MeshKey(KEY))
    assert one.on_message(two.greeting()) == "accept"
    assert two.on_message(one.greeting()) == "accept"
    assert one.greeting().p != two.greeting().p


@pytest.mark.parametrize(
    ("mine", "theirs", "bindings"),
    [(KEY, OTHER, ("link", "link")), (KEY, KEY, ("link", "another"))],
)
def test_another_key_or_somebody_between_closes(mine, theirs, bindings):
    one, two = ends(dialer=MeshKey(mine), acceptor=MeshKey(theirs), bindings=bindings)
    assert one.on_message(two.greeting()) == "close"
    assert two.on_message(one.greeting()) == "close"


def test_a_proof_sent_back_is_no_proof():
    one, _ = ends(dialer=MeshKey(KEY), acceptor=MeshKey(KEY))
    assert one.on_message(one.greeting()) == "close"


@pytest.mark.parametrize("proof", ["", "00" * 32, "x", "Ab" * 32])
def test_other_texts_are_no_proof(proof):
    one, _ = ends(dialer=MeshKey(KEY), acceptor=MeshKey(KEY))
    assert one.on_message(Mesh(v=1, p=proof)) == "close"


@pytest.mark.parametrize("message", [Mesh(v=1, none=1), Mesh(v=1, p="00" * 32)])
def test_a_device_without_a_key_takes_anything_and_says_none(message):
    one, _ = ends(dialer=MeshKey(""), acceptor=MeshKey(""))
    assert one.greeting() == Mesh(v=1, none=1)
    assert one.on_time() == "close"
    assert one.on_message(message) == "accept"
    assert one.on_time() == "accept"


def test_without_a_binding_nothing_is_proved():
    one, two = ends(dialer=MeshKey(KEY), acceptor=MeshKey(KEY), bindings=("", "link"))
    assert one.greeting() == Mesh(v=1, none=1)
    assert one.on_message(two.greeting()) == "close"


@pytest.mark.parametrize(
    ("takes_older", "listed", "at_once", "in_the_end"),
    [
        (False, None, "close", "close"),
        (False, False, "close", "close"),
        (True, True, "close", "close"),
        (True, False, "accept", "accept"),
        (True, None, "wait", "close"),
    ],
)
def test_who_proves_nothing(takes_older, listed, at_once, in_the_end):
    mesh = MeshKey(KEY, takes_older_devices=takes_older, proves=lambda peer_id: listed)
    one, _ = ends(dialer=mesh, acceptor=MeshKey(""))
    assert one.on_message(Mesh(v=1, none=1)) == at_once
    assert one.on_time() == in_the_end


def test_the_roster_decides_on_who_waits():
    roster: dict[str, bool] = {}
    mesh = MeshKey(KEY, takes_older_devices=True, proves=roster.get)
    one, _ = ends(dialer=mesh, acceptor=MeshKey(""))
    assert one.again() == "wait"
    assert one.on_message(Mesh(v=1, none=1)) == "wait"
    roster["b"] = False
    assert one.again() == "accept"


@pytest.mark.parametrize(("listed", "verdict"), [(False, "accept"), (True, "wait"), (None, "wait")])
def test_an_older_device_of_the_roster_need_not_speak(listed, verdict):
    mesh = MeshKey(KEY, takes_older_devices=True, proves=lambda peer_id: listed)
    one, _ = ends(dialer=mesh, acceptor=MeshKey(""))
    assert one.again() == verdict
    mesh.takes_older_devices = False
    other, _ = ends(dialer=mesh, acceptor=MeshKey(""))
    assert other.again() == "wait"


def test_a_silent_end_is_closed_in_the_end():
    one, _ = ends(dialer=MeshKey(KEY), acceptor=MeshKey(KEY))
    assert one.on_time() == "close"


@pytest.mark.parametrize(("told", "verdict"), [("", "accept"), (KEY, "accept"), (OTHER, "close")])
def test_a_device_that_is_not_in_yet_accepts_nobody(told, verdict):
    mesh = MeshKey(takes_older_devices=True, proves=lambda peer_id: False)
    one, two = ends(dialer=mesh, acceptor=MeshKey(KEY))
    assert one.greeting() == Mesh(v=1, none=1)
    assert one.again() == "wait"
    assert one.on_message(two.greeting()) == "wait"
    assert one.on_message(Mesh(v=1, none=1)) == "wait"
    assert one.again() == "wait"
    assert one.on_time() == "close"
    mesh.key, mesh.takes_older_devices = told, False
    assert one.again() == verdict


def test_the_key_is_not_printed():
    assert KEY not in repr(MeshKey(KEY))
