"""What `poolhouse host` and `poolhouse up` make of their command line."""

import pytest
import typer
from typer.testing import CliRunner

from poolhouse_node.cli import host as host_module
from poolhouse_node.cli import main, room_commands, up
from poolhouse_node.cli.measuring import MetricsOptions
from poolhouse_node.cli.options import parse_redeal_after


@pytest.fixture
def given(monkeypatch):
    """The options that a command line ends up as."""
    found = []
    monkeypatch.delenv("POOLHOUSE_PRECISION")  # of all tests
    monkeypatch.setattr(room_commands, "run", lambda started: None)
    monkeypatch.setattr(host_module, "host_room", found.append)
    monkeypatch.setattr(up, "bring_up", found.append)

    def given(*arguments: str, **env: str):
        result = CliRunner().invoke(main.app, list(arguments), env=env)
        assert result.exit_code == 0, result.output
        return found.pop()

    return given


def test_nothing_is_said_without_options(given):
    options = given("host")
    assert options.said == frozenset()
    assert not options.resume
    assert options.redeal_after_s == 60.0


def test_options_variables_and_files_are_said(given, tmp_path):
    file = tmp_path / "poolhouse.toml"
    file.write_text("[host]\nsystem = 'Be brief.'\n")
    options = given(
        *("--config", str(file), "host", "--resume", "--split", "10,20", "--open"),
        POOLHOUSE_NAME="attic",
    )
    assert options.said == {"resume", "split", "open_room", "name", "system"}
    assert options.resume


def test_a_default_that_is_said_is_said(given):
    assert given("host", "--top-k", "40").said == {"top_k"}


def test_a_unit_or_a_pod_resumes_by_a_variable(given):
    options = given("host", POOLHOUSE_RESUME="1", POOLHOUSE_REDEAL_AFTER="never")
    assert options.resume
    assert options.redeal_after_s is None


def test_up_takes_api_clients_or_not(given):
    assert given("up").host.takes_api_clients
    options = given("up", "--no-api-clients").host
    assert not options.takes_api_clients
    assert options.said == {"api_clients"}
    assert not given("up", POOLHOUSE_API_CLIENTS="0").host.takes_api_clients


def test_up_knows_them_too(given):
    options = given("up", "--devices", "2", "--resume", "--redeal-after", "5")
    assert options.host.resume
    assert options.host.redeal_after_s == 5.0
    assert options.host.said == {"devices", "resume", "redeal_after"}
    assert options.host.is_open


@pytest.mark.parametrize(
    ("text", "seconds"), [("60", 60.0), ("0.5", 0.5), ("0", None), ("never", None), ("Never", None)]
)
def test_the_wait_before_a_re_deal_is_read(text, seconds):
    assert parse_redeal_after(text) == seconds


@pytest.mark.parametrize("text", ["", "-1", "nan", "inf", "soon", "1e9"])
def test_other_waits_are_usage_errors(text):
    with pytest.raises(typer.BadParameter):
        parse_redeal_after(text)


@pytest.mark.parametrize("command", ["host", "up"])
def test_metrics_are_off_by_default_and_on_loopback(given, command):
    options = given(command)
    assert (options if command == "host" else options.host).metrics == MetricsOptions()
    assert MetricsOptions().port is None
    assert MetricsOptions().bind == "127.0.0.1"


def test_metrics_by_options_and_variables(given):
    options = given(
        *("host", "--metrics-port", "9101", "--metrics-room-label"),
        POOLHOUSE_METRICS_BIND="0.0.0.0",
    )
    assert options.metrics == MetricsOptions(9101, "0.0.0.0", names_room=True)
