"""What is told after an installation."""

import pytest

from tests.support.chart import SCENARIOS, render_notes, scenario


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("default", "http://demo-poolhouse-control.rooms.svc:8080"),
        ("default", "kubectl -n rooms port-forward service/demo-poolhouse-control 8080:8080"),
        ("default", "one control plane, everything in memory"),
        ("default", "no relay is handed out"),
        ("default", "image.registry is empty"),
        ("ha-redis", "Devices meet at https://room.example.org"),
        ("host-room", "is in the Secret room, key room-link"),
        ("host-room", "exec demo-poolhouse-host-0 -- poolhouse room status"),
        ("host-room", "A pod that stays Pending"),
        ("host-room", "Links that stay relayed"),
        ("gpu-pool", "as demo-poolhouse-h200-0"),
        ("relay-hostnet", "control.trustedProxies is empty"),
        ("relay-hostnet", "room for a few links between nodes"),
        ("everything-on", "WARNING: http://a.example.org has no TLS"),
    ],
)
def test_notes_tell_what_to_do_next(name, words):
    assert words in render_notes(scenario(name))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("ha-redis", "everything in memory"),
        ("ha-redis", "no relay"),
        ("ha-redis", "trustedProxies"),
        ("ha-redis", "image.registry"),
        ("gpu-pool", "Devices meet at"),
        ("ha-redis", "room for a few links"),
        ("default", "Pending"),
        ("default", "WARNING"),
    ],
)
def test_notes_tell_nothing_that_is_not_so(name, words):
    assert words not in render_notes(scenario(name))


@pytest.mark.parametrize("name", SCENARIOS)
def test_notes_tell_no_secret(name):
    notes = render_notes(scenario(name))
    assert "#k=" not in notes
    assert "get secret" not in notes


def test_notes_are_silent_about_a_limit_that_was_thought_of():
    values = scenario("relay-hostnet")
    values["relay"]["settings"]["POOLHOUSE_COTURN_BPS_CAPACITY"] = 0
    assert "few links" not in render_notes(values)


def test_notes_tell_nothing_of_a_control_plane_that_is_elsewhere():
    ingress = {"enabled": True, "hosts": ["a.example.org"]}
    notes = render_notes({"control": {"enabled": False, "ingress": ingress}})
    assert "a.example.org" not in notes
