"""Options about paths between networks."""

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from poolhouse_node.cli import holding
from poolhouse_node.cli.children import _own_environment
from poolhouse_node.cli.join import JoinOptions
from poolhouse_node.cli.main import app
from poolhouse_node.cli.options import PATH_VARIABLES
from poolhouse_node.cli.paths import read_ice_file, read_paths
from poolhouse_node.cli.room import describe_path
from poolhouse_node.cli.rooms import read_invite
from poolhouse_node.rtc.ice import PathSettings
from poolhouse_node.rtc.peer import TurnServer

NOTHING = {"stun": None, "ice": None, "relay_only": False, "udp_ports": None, "bind": None}
RELAY = {"urls": "turn:r.example.org", "username": "u", "credential": "hush"}


def paths(**said) -> PathSettings:
    return read_paths(**({"engine": "libdatachannel"} | NOTHING | said))


def ice_file(folder: Path, value) -> Path:
    file = folder / "ice.json"
    file.write_text(value if isinstance(value, str) else json.dumps(value))
    return file


def test_who_says_nothing_gets_the_default():
    assert paths() == PathSettings()


def test_everything_that_can_be_said(tmp_path):
    file = ice_file(
        tmp_path,
        [{"urls": ["stun:s.example.org"]}, RELAY | {"urls": ["turn:r", " turns:r:443 "]}],
    )
    assert paths(
        stun=["stun:a", "stun:b:9", "stun:a"],
        ice=file,
        relay_only=True,
        udp_ports="50000-50100",
        bind="127.0.0.1",
    ) == PathSettings(
        stun=("stun:a", "stun:b:9", "stun:s.example.org"),
        turn=(TurnServer("turn:r", "u", "hush"), TurnServer("turns:r:443", "u", "hush")),
        relay_only=True,
        port_range=(50000, 50100),
        bind="127.0.0.1",
    )


def test_stun_servers_of_the_file_stand_for_the_public_ones(tmp_path):
    file = ice_file(tmp_path, [{"urls": "stun:s.example.org"}])
    assert paths(ice=file).stun == ("stun:s.example.org",)
    assert paths(ice=file, stun=["none"]).stun == ()
    assert paths(stun=["none"]).stun == ()
    assert paths(ice=ice_file(tmp_path, [RELAY])).stun is None


BAD_OPTIONS = [
    (["--stun", "stun.example.org"], "no STUN server"),
    (["--stun", "turn:example.org"], "no STUN server"),
    (["--stun", "none", "--stun", "stun:a"], "stands alone"),
    (["--udp-ports", "5000"], "no range of UDP ports"),
    (["--udp-ports", "5000-4000"], "no range of UDP ports"),
    (["--udp-ports", "80-90"], "no range of UDP ports"),
    (["--udp-ports", "50000-70000"], "no range of UDP ports"),
    (["--udp-ports", "50000-50100", "--rtc", "aiortc"], "aiortc takes any port"),
    (["--bind", "attic.lan"], "no IP address"),
    (["--bind", "203.0.113.7"], "no address of this machine"),
    (["--ice", "/does/not/exist"], "cannot be read"),
]


@pytest.mark.parametrize("command", [["host"], ["join", "4TKG9P"], ["ask", "4TKG9P", "Hi?"]])
@pytest.mark.parametrize(("options", "words"), BAD_OPTIONS, ids=lambda value: str(value)[:40])
def test_what_cannot_be_used_is_a_usage_error(command, options, words):
    result = CliRunner().invoke(app, [*command, *options], env={"COLUMNS": "500"})
    assert result.exit_code == 2
    assert words in result.output


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("POOLHOUSE_STUN", "nonsense", "no STUN server"),
        ("POOLHOUSE_UDP_PORTS", "9-8", "no range"),
        ("POOLHOUSE_BIND", "x", "no IP address"),
        ("POOLHOUSE_ICE", "/does/not/exist", "cannot be read"),
        ("POOLHOUSE_RELAY_ONLY", "perhaps", "boolean"),
    ],
)
def test_each_option_has_a_variable(variable, value, words):
    env = {"COLUMNS": "500", variable: value}
    result = CliRunner().invoke(app, ["join", "4TKG9P"], env=env)
    assert result.exit_code == 2
    assert words in result.output
    assert variable in PATH_VARIABLES


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "no JSON list"),
        ("{", "no JSON list"),
        ("[" * 100_000, "no JSON list"),
        ({"iceServers": [RELAY]}, "no JSON list"),
        ([], "no JSON list"),
        ([RELAY, 5], "entry 2 is not made of"),
        ([RELAY | {"secret": "x"}], "entry 1 is not made of"),
        ([{"username": "u"}], "has no urls"),
        ([{"urls": []}], "has no urls"),
        ([{"urls": [7]}], "no address of a STUN or TURN server"),
        ([RELAY | {"urls": "turn:user@r"}], "no address of a STUN or TURN server"),
        ([RELAY | {"urls": "turn:r:99999"}], "not the address of a relay"),
        ([RELAY | {"urls": "turns:r?transport=udp"}], "TLS over UDP"),
        ([RELAY | {"credential": ""}], "needs a username and a credential"),
        ([{"urls": "turn:r"}], "needs a username and a credential"),
        ([RELAY | {"username": 5}], "needs a username and a credential"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_file_that_cannot_be_used_is_named_but_not_quoted(tmp_path, value, words):
    file = ice_file(tmp_path, value)
    with pytest.raises(typer.BadParameter, match=words) as failed:
        read_ice_file(file)
    assert str(file) in str(failed.value)
    assert "hush" not in str(failed.value)


def test_bytes_that_are_no_text_are_no_list(tmp_path):
    file = tmp_path / "ice.json"
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(typer.BadParameter, match="no JSON list"):
        read_ice_file(file)


def test_options_reach_the_device(monkeypatch, tmp_path):
    seen = []

    async def holds(options, rooms, *, as_json):
        seen.append(options)
        return 0

    monkeypatch.setattr(holding, "hold_layers", holds)
    monkeypatch.setattr("poolhouse_node.cli.room_commands.run", lambda main: main.send(None))
    file = ice_file(tmp_path, [RELAY])
    arguments = ["join", "4TKG9P", "--ice", str(file), "--relay-only", "--stun", "none"]
    CliRunner().invoke(app, arguments)
    assert seen[0].paths == PathSettings(
        stun=(), turn=(TurnServer("turn:r.example.org", "u", "hush"),), relay_only=True
    )


def test_a_link_that_somebody_sent_gets_no_api_token():
    environment = {"POOLHOUSE_API_TOKEN": " secret "}
    link = "https://evil.example.org/r/4TKG9P"
    invite = read_invite(link)
    sent = JoinOptions(link, None, "libdatachannel", environment).place(invite)
    assert sent.servers == ["https://evil.example.org"]
    assert sent.paths.api_token is None
    chosen = JoinOptions(link, "room.example.org", "libdatachannel", environment).place(invite)
    assert chosen.paths.api_token == "secret"
    assert "secret" not in repr(chosen)


def test_devices_of_one_machine_get_no_settings_for_other_networks(monkeypatch):
    for variable in PATH_VARIABLES:
        monkeypatch.setenv(variable, "1")
    monkeypatch.setenv("POOLHOUSE_THREADS", "1")
    assert not _own_environment().keys() & set(PATH_VARIABLES)
    assert _own_environment()["POOLHOUSE_THREADS"] == "1"


@pytest.mark.parametrize(
    ("transport", "words"),
    [
        ("libdatachannel host/host", "direct (libdatachannel host/host)"),
        ("aiortc prflx/srflx", "direct (aiortc prflx/srflx)"),
        ("libdatachannel relay/host", "through a relay (libdatachannel relay/host)"),
        ("aiortc host/relay", "through a relay (aiortc host/relay)"),
        ("libdatachannel", "path not known yet (libdatachannel)"),
    ],
)
def test_the_path_of_a_link_in_words(transport, words):
    assert describe_path(transport) == words
