"""Every variable and argument that the chart renders is one that the programs know."""

import re
from dataclasses import fields

import pytest
import typer
from click.testing import CliRunner

from poolhouse_control.relay.coturn import render as render_coturn
from poolhouse_control.relay.coturn_settings import CoturnSettings
from poolhouse_control.relay.coturn_trial import try_with_coturn
from poolhouse_control.settings import Settings
from poolhouse_control.settings import describe as describe_settings
from poolhouse_node.cli.main import app
from poolhouse_node.cli.secret_files import FROM_FILES
from poolhouse_node.cli.state import STATE
from tests.support.chart import SCENARIOS, containers, pods, render, scenario

EVERY = pytest.mark.parametrize("name", SCENARIOS)
WITH_RELAY = pytest.mark.parametrize("name", ["relay-hostnet", "everything-on"])
COMMANDS = typer.main.get_command(app).commands
OF_THE_MODEL_CACHE = "POOLHOUSE_CACHE"
SECRETS = {each.name for each in fields(Settings) if each.metadata["secret"]}
SECRET_VALUE = "s" * 64
MACHINE = "192.0.2.4"
CONTENTS = {
    "POOLHOUSE_REDIS_URL_FILE": "redis://redis:6379",
    "POOLHOUSE_TURN_ICE_SERVERS_FILE": "[]",
}


def programs(name: str) -> list[tuple[str, list[str], dict[str, str | None]]]:
    """Component, arguments and variables of every container that runs our program."""
    return [
        (pod.component, container["args"], {v["name"]: v.get("value") for v in container["env"]})
        for pod in pods(render(scenario(name)))
        for container in containers(pod)
        if re.search("poolhouse-(control|node)", container["image"]) and "command" not in container
    ]


def known_to(arguments: list[str]) -> set[str]:
    """Variables of our program that this command reads."""
    if arguments[:2] == ["turn", "config"]:
        coturn = {f"POOLHOUSE_COTURN_{each.name.upper()}" for each in fields(CoturnSettings)}
        return coturn | {key.variable for key in describe_settings()}
    if arguments[0] == "control":
        return {key.variable for key in describe_settings()}
    options = {each.envvar for each in COMMANDS[arguments[0]].params if each.envvar}
    return options | {f"{each}_FILE" for each in FROM_FILES} | {STATE, OF_THE_MODEL_CACHE}


@EVERY
def test_every_variable_exists(name):
    for _, arguments, variables in programs(name):
        ours = {variable for variable in variables if variable.startswith("POOLHOUSE_")}
        assert ours - known_to(arguments) == set()


@EVERY
def test_every_argument_exists(name, monkeypatch):
    """The programs' own parser reads the command lines, and nothing runs."""
    for _, arguments, variables in programs(name):
        command, words = COMMANDS[arguments[0]], arguments[1:]
        if arguments[0] == "turn":
            command, words = command.commands[words[0]], words[1:]
        monkeypatch.setattr(command, "callback", lambda **_: None)
        said = {key: value for key, value in variables.items() if value and "_FILE" not in key}
        said = {key: value for key, value in said.items() if key != "POOLHOUSE_ICE"}
        room = {"POOLHOUSE_ROOM": "4TK-G9P"} if arguments[0] == "join" else {}
        result = CliRunner().invoke(command, words, env={**said, **room})
        assert result.exit_code == 0, result.output


@EVERY
def test_the_control_plane_takes_its_variables(name, tmp_path):
    for component, arguments, variables in programs(name):
        if component == "control" and arguments[0] == "control":
            settings = Settings.load(with_files(variables, tmp_path))
            assert settings.admin_host == "0.0.0.0"
            assert settings.replicas == 1 or settings.redis_url


def coturns_file(name: str, folder) -> str:
    """What the relay's first container would write."""
    (variables,) = [found for component, _, found in programs(name) if component == "relay"]
    found = with_files(variables, folder)
    secrets = Settings.load(found).turn_secrets
    return render_coturn(CoturnSettings.load(found), secrets=secrets, labels=False)


@WITH_RELAY
def test_coturns_file_can_be_made_of_the_relays_variables(name, tmp_path):
    lines = coturns_file(name, tmp_path).splitlines()
    assert {f"static-auth-secret={SECRET_VALUE}", f"listening-ip={MACHINE}"} <= set(lines)
    assert not [line for line in lines if line.startswith("proc-")]
    is_behind_nat = name == "relay-hostnet"
    assert (f"external-ip=203.0.113.7/{MACHINE}" in lines) is is_behind_nat
    assert (f"allowed-peer-ip={MACHINE}" in lines) is is_behind_nat


@pytest.mark.coturn
@WITH_RELAY
async def test_coturn_itself_takes_that_file(name, tmp_path):
    assert await try_with_coturn(coturns_file(name, tmp_path)) == []


def with_files(variables: dict[str, str | None], folder) -> dict[str, str]:
    """The variables as a container has them: secrets in files, fields of the pod filled in."""
    found = {}
    for name, value in variables.items():
        address = (value or MACHINE).replace("$(POOLHOUSE_COTURN_LISTENING_IPS)", MACHINE)
        found[name] = "" if value == "" else address
        if name.endswith("_FILE"):
            file = folder / name
            file.write_text(CONTENTS.get(name, SECRET_VALUE))
            found[name] = str(file)
    return found


# ---- secrets ------------------------------------------------------------------------------------


@EVERY
def test_no_secret_is_a_variable(name):
    secret = {f"POOLHOUSE_{each.upper()}" for each in SECRETS} | set(FROM_FILES)
    for _, _, variables in programs(name):
        assert not secret & variables.keys()


@EVERY
def test_secrets_come_from_those_that_values_name(name):
    values = str(scenario(name))
    for pod in pods(render(scenario(name))):
        for volume in pod.spec.get("volumes", []):
            if "secret" in volume:
                assert f"'{volume['secret']['secretName']}'" in values
                assert volume["secret"]["defaultMode"] == 0o440


@EVERY
def test_the_chart_makes_no_secret_and_no_variable_from_one(name):
    objects = render(scenario(name))
    assert not [each for each in objects if each["kind"] == "Secret"]
    assert "secretKeyRef" not in str(objects)


@EVERY
def test_every_file_that_a_variable_names_is_mounted(name):
    for pod in pods(render(scenario(name))):
        files = {}
        for volume in pod.spec.get("volumes", []):
            items = volume.get("secret", {}).get("items", [])
            files[volume["name"]] = {item["path"] for item in items}
        mounted = {
            f"{mount['mountPath']}/{file}"
            for container in containers(pod)
            for mount in container.get("volumeMounts", [])
            for file in files.get(mount["name"], set()) or {"tls.crt", "tls.key"}
        }
        variables = [each for container in containers(pod) for each in container.get("env", [])]
        named = {
            each["value"] for each in variables if each.get("value", "").startswith("/run/sec")
        }
        assert named <= mounted


def test_values_have_no_place_for_a_secret():
    from tests.support.chart import CHART

    text = (CHART / "values.yaml").read_text()
    assert not re.search(
        r"(?i)^\s*(password|secret|token|apikey|link): *[^ {\n]", text, re.MULTILINE
    )
