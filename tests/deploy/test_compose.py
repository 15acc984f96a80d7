"""The compose files say what the program understands, and nothing that gives a secret away."""

import ipaddress
import itertools
import re

import pytest
import typer
import yaml

from poolhouse_control.relay.coturn import render
from poolhouse_control.relay.coturn_settings import CoturnSettings
from poolhouse_control.settings import Settings
from poolhouse_node.cli.main import app
from tests.support.compose import DEPLOY, read_compose
from tests.support.known_variables import known_variables

FILES = ("compose.yaml", "compose.gpu-node.yaml")
ENV = {"POOLHOUSE_SIGNAL": "http://desk.lan:8080", "POOLHOUSE_ADDRESS": "desk.lan"}
ALL = {name: read_compose(name, env=ENV) for name in FILES}
SERVICES = [(name, service) for name, compose in ALL.items() for service in compose.services]
ONCE = {"ask", "relay-config"}
"""Services that end by themselves."""
LIKE_A_SECRET = re.compile(r"(?:PASSWORD|SECRET|TOKEN|_KEY|INVITE|ROOM|REDIS_URL)$")

each_service = pytest.mark.parametrize(("file", "service"), SERVICES)


@pytest.mark.parametrize("file", sorted(DEPLOY.glob("*.yaml")), ids=lambda path: path.name)
def test_no_key_is_said_twice(file):
    """YAML takes the later of two equal keys, and nobody sees that the first is gone."""

    class Strict(yaml.SafeLoader):
        def construct_mapping(self, node, deep=False):
            keys = [key.value for key, _ in node.value if key.value != "<<"]
            assert len(keys) == len(set(keys)), f"{file.name}: {keys}"
            return super().construct_mapping(node, deep)

    yaml.load(file.read_text(), Strict)


def test_everything_that_an_operator_needs_is_there():
    assert set(ALL["compose.yaml"].services) == {
        "ask", "control", "grafana", "host", "prometheus", "redis", "relay", "relay-config",
        "worker-1", "worker-2",
    }  # fmt: skip


@each_service
def test_a_service_is_shut_in(file, service):
    said = ALL[file].services[service]
    assert said["read_only"] is True
    assert said["cap_drop"] == ["ALL"]
    assert "cap_add" not in said
    assert "privileged" not in said
    assert said["security_opt"] == ["no-new-privileges:true"]
    assert said["tmpfs"] == ["/tmp"]
    assert said["logging"] == {"driver": "local"}
    assert int(said["user"].split(":")[0]) > 0
    assert said["restart"] == ("no" if service in ONCE else "unless-stopped")


@each_service
def test_images_are_made_here_or_have_a_version(file, service):
    compose = ALL[file]
    said = compose.services[service]
    if not compose.is_ours(service):
        assert re.search(r":v?\d", said["image"])
    elif "build" in said:
        dockerfile = (DEPLOY.parent / said["build"]["dockerfile"]).read_text()
        target = said["build"].get("target")
        assert target is None or re.search(rf"^FROM .* AS {target}$", dockerfile, re.MULTILINE)
        for argument in said["build"].get("args", {}):
            assert f"ARG {argument}" in dockerfile


@each_service
def test_every_variable_and_option_exists(file, service):
    compose = ALL[file]
    ours = {name for name in compose.environment(service) if name.startswith("POOLHOUSE_")}
    assert ours <= known_variables()
    words = compose.command(service)
    if compose.is_ours(service) and service != "relay":
        command = typer.main.get_command(app)
        while hasattr(command, "commands"):
            command, words = command.commands[words[0]], words[1:]
        if {"room", "rooms"} & {each.name for each in command.params}:
            words = ["ABCDEF", *words]  # the room comes from a file
        command.make_context("x", words)


@each_service
def test_no_secret_is_in_the_environment(file, service):
    assert not [name for name in ALL[file].environment(service) if LIKE_A_SECRET.search(name)]


@each_service
def test_what_ends_in_file_names_a_secret_that_the_service_has(file, service):
    compose = ALL[file]
    mounted = {f"/run/secrets/{name}" for name in compose.services[service].get("secrets", [])}
    named = {
        value for name, value in compose.environment(service).items() if name.endswith("_FILE")
    } | {word for word in compose.command(service) if word.startswith("/run/secrets/")}
    assert named == mounted


@pytest.mark.parametrize("file", FILES)
def test_secrets_and_volumes_are_declared_and_used(file):
    compose = ALL[file]
    used = {name for each in compose.services.values() for name in each.get("secrets", [])}
    assert used == set(compose.content["secrets"])
    sources = {source for each in compose.services for source, _ in compose.volumes(each)}
    assert {source for source in sources if "/" not in source} == set(compose.content["volumes"])
    for folder in (source for source in sources if "/" in source):
        assert (DEPLOY / folder).is_dir()


@each_service
def test_what_is_waited_for_can_be_well(file, service):
    compose = ALL[file]
    for other, how in compose.services[service].get("depends_on", {}).items():
        if how["condition"] == "service_completed_successfully":
            assert other in ONCE
        else:
            assert how["condition"] == "service_healthy"
            assert compose.is_ours(other) or "healthcheck" in compose.services[other]


def test_only_signaling_is_open_to_the_network():
    ports = {
        port for each in ALL["compose.yaml"].services.values() for port in each.get("ports", [])
    }
    assert {port for port in ports if not port.startswith("127.0.0.1:")} == {"8080:8080"}


def test_the_relay_file_is_safe_and_the_control_plane_reads_its_settings(tmp_path):
    compose = ALL["compose.yaml"]
    secret = tmp_path / "turn-secret"
    secret.write_text("0123456789abcdef" * 4)
    (tmp_path / "redis-url").write_text("redis://:x@redis:6379/0")
    files = {"POOLHOUSE_TURN_SECRET_FILE": str(secret)}
    coturn = CoturnSettings.load(compose.environment("relay-config") | files)
    assert "no-tcp-relay" in render(coturn, secrets=["0123456789abcdef" * 4])
    files["POOLHOUSE_REDIS_URL_FILE"] = str(tmp_path / "redis-url")
    settings = Settings.load(compose.environment("control") | files)
    assert settings.turn_urls[0] == "turn:desk.lan:3478"
    assert "http://control:8080" in settings.turn_allowed_origins


def test_a_node_asks_no_stranger_unless_told():
    for service in ("host", "worker-1", "worker-2", "ask"):
        assert ALL["compose.yaml"].environment(service)["POOLHOUSE_STUN"] == "none"


def test_devices_have_names_and_states_of_their_own():
    compose = ALL["compose.yaml"]
    devices = ("host", "worker-1", "worker-2", "ask")
    names = {compose.environment(each)["POOLHOUSE_NAME"] for each in devices}
    states = {next(iter(compose.volumes(each)))[0] for each in devices}
    assert len(names) == len(states) == len(devices)


def test_in_the_lan_devices_share_an_address_and_no_port():
    base = read_compose("compose.yaml", env=ENV)
    over = read_compose("compose.yaml", "compose.lan.yaml", env=ENV)
    changed = [name for name in base.services if base.services[name] != over.services[name]]
    assert changed == ["host", "worker-1", "worker-2"]
    ranges, metrics = [], set()
    for name in changed:
        env = over.environment(name)
        assert over.services[name]["network_mode"] == "host"
        assert "networks" not in over.services[name]
        assert env["POOLHOUSE_SIGNAL"] == "http://desk.lan:8080"
        first, last = map(int, env["POOLHOUSE_UDP_PORTS"].split("-"))
        ranges.append(range(first, last + 1))
        metrics.add(env["POOLHOUSE_METRICS_PORT"])
        assert f":{env['POOLHOUSE_METRICS_PORT']}/" in env["POOLHOUSE_HEALTH_URL"]
        assert ipaddress.ip_address(env["POOLHOUSE_METRICS_BIND"]).is_loopback
        assert env["POOLHOUSE_NAME"] == name  # the rest stays as it was
    assert len(metrics) == 3
    assert not any(set(one) & set(two) for one, two in itertools.combinations(ranges, 2))


def test_the_gpu_node_gets_a_gpu_and_must_be_told_where_to_go():
    node = ALL["compose.gpu-node.yaml"].services["gpu-node"]
    (device,) = node["deploy"]["resources"]["reservations"]["devices"]
    assert device == {"driver": "nvidia", "count": 1, "capabilities": ["gpu"]}
    assert node["build"]["target"] == "cuda"
    with pytest.raises(KeyError, match="POOLHOUSE_SIGNAL"):
        read_compose("compose.gpu-node.yaml")


def test_grafana_finds_what_is_provisioned_where_it_is_mounted():
    compose = ALL["compose.yaml"]
    mounted = {target: DEPLOY / source for source, target in compose.volumes("grafana")}
    provisioning = mounted["/etc/grafana/provisioning"]
    (provider,) = [
        provider
        for file in (provisioning / "dashboards").glob("*.yml")
        for provider in yaml.safe_load(file.read_text())["providers"]
    ]
    assert list(mounted[provider["options"]["path"]].glob("*.json"))
    (source,) = yaml.safe_load((provisioning / "datasources" / "prometheus.yml").read_text())[
        "datasources"
    ]
    assert source["url"] == "http://prometheus:9090"
    assert "prometheus" in compose.services


def test_prometheus_asks_the_services_that_are_there():
    compose = ALL["compose.yaml"]
    (folder,) = [source for source, path in compose.volumes("prometheus") if "etc" in path]
    config = yaml.safe_load((DEPLOY / folder / "prometheus.yml").read_text())
    targets = {
        target
        for job in config["scrape_configs"]
        for group in job["static_configs"]
        for target in group["targets"]
    }
    devices = [
        name for name in compose.services if "POOLHOUSE_METRICS_PORT" in compose.environment(name)
    ]
    ports = {name: compose.environment(name)["POOLHOUSE_METRICS_PORT"] for name in devices}
    assert targets == {f"{name}:{port}" for name, port in ports.items()} | {"control:9090"}
