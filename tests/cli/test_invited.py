"""A room of a link that was made before it."""

import pytest
from typer.testing import CliRunner

from poolhouse_node.cli import main
from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.host import HostOptions
from poolhouse_node.cli.invited import new_invite, with_invite
from poolhouse_node.cli.rooms import Place
from poolhouse_node.cli.state import RoomState
from poolhouse_node.generate.sampler import Sampling
from poolhouse_node.wire.codes import parse_invite

KEY = "k" * 22


def options(code: str | None = None) -> HostOptions:
    place = Place.read("localhost:8080", "libdatachannel")
    return HostOptions(place, "model", Sampling(0.0, 40), 10, code=code)


def test_a_new_link_has_a_code_a_key_and_the_address():
    link = new_invite("https://room.example.org")
    invite = parse_invite(link)
    assert link.startswith("https://room.example.org")
    assert len(invite.code) == 6
    assert len(invite.key) == 22
    assert new_invite("https://room.example.org") != link


def test_the_host_opens_the_room_of_the_link_with_its_key(tmp_path):
    invited = with_invite(options(), {"POOLHOUSE_INVITE": f"http://desk.lan/r/4TKG9P#k={KEY}"})
    assert invited.code == "4TKG9P"
    state = RoomState.of("4TKG9P", {"POOLHOUSE_STATE": str(tmp_path)})
    assert invited.gate(state).key == KEY
    assert KEY not in repr(invited)


def test_the_link_counts_before_a_key_that_was_kept_and_passes_stay(tmp_path):
    state = RoomState.of("4TKG9P", {"POOLHOUSE_STATE": str(tmp_path)})
    before = options().gate(state)
    before.passes["p" * 64] = "cellar"
    state.save_gate(before.state())
    invited = with_invite(options(), {"POOLHOUSE_INVITE": f"http://desk.lan/r/4TKG9P#k={KEY}"})
    gate = invited.gate(state)
    assert gate.key == KEY != before.key
    assert gate.mesh_key == before.mesh_key


def test_without_a_link_nothing_changes():
    given = options("4TKG9P")
    assert with_invite(given, {}) is given
    assert with_invite(given, {"POOLHOUSE_INVITE": " "}) is given


def test_the_code_may_be_said_as_well():
    environment = {"POOLHOUSE_INVITE": f"http://desk.lan/r/4TKG9P#k={KEY}"}
    assert with_invite(options("4tk-g9p"), environment).code == "4TKG9P"


@pytest.mark.parametrize(
    ("link", "words"),
    [
        ("4TK-G9P", "no key"),
        ("http://desk.lan/r/4TKG9P#k=short", "no key"),
        ("http://desk.lan/", "neither a room code"),
        (f"http://desk.lan/r/9PG4TK#k={KEY}", "another room"),
    ],
)
def test_a_link_that_is_no_good_is_a_sentence(link, words):
    with pytest.raises(CommandFailed, match=words):
        with_invite(options("4TKG9P"), {"POOLHOUSE_INVITE": link})


def test_room_new_prints_a_link(monkeypatch, capsys):
    made = []
    monkeypatch.setattr("poolhouse_node.cli.room_app.run", made.append)
    result = CliRunner().invoke(main.app, ["room", "new", "--signal", "desk.lan:8080"])
    assert result.exit_code == 0
    with pytest.raises(StopIteration):
        made[0].send(None)
    assert parse_invite(capsys.readouterr().out).key


def test_a_file_that_is_not_there_is_a_usage_error():
    result = CliRunner().invoke(main.app, ["doctor"], env={"POOLHOUSE_ROOM_FILE": "/nowhere"})
    assert result.exit_code == 2
    assert "POOLHOUSE_ROOM_FILE" in result.output
