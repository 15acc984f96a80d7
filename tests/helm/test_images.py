"""The chart and the images agree: names, tags, folders, ports, the user."""

import json
import re
import sys
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader

import pytest

from tests.support.chart import ROOT, containers, pods, render, scenario

REGISTRY = "registry.example.org/team"


def dockerfile(part: str) -> str:
    return (ROOT / "deploy" / f"{part}.Dockerfile").read_text(encoding="utf-8").replace("\\\n", " ")


@pytest.fixture
def release(monkeypatch):
    loader = SourceFileLoader("release", str(ROOT / "tools" / "release"))
    spec = spec_from_loader(loader.name, loader)
    module = module_from_spec(spec)
    monkeypatch.setitem(sys.modules, loader.name, module)  # dataclasses look their module up
    loader.exec_module(module)
    return module


def everything() -> list:
    values = scenario("everything-on")
    values["image"] = {"registry": REGISTRY}
    values["control"]["image"] = {}
    return pods(render(values))


def test_images_are_those_that_a_release_pushes(release):
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)[
        1
    ]
    pushed = {image.tag(REGISTRY, version) for image in release.IMAGES}
    used = {container["image"] for pod in everything() for container in containers(pod)}
    assert {image for image in used if "poolhouse-" in image} == pushed


def test_a_devices_folders_are_the_images_and_each_can_be_written():
    text = dockerfile("node")
    volumes = set(re.findall(r'"(/[^"]+)"', re.search(r"^VOLUME (.*)$", text, re.MULTILINE)[1]))
    (node,) = [pod for pod in everything() if pod.component == "host"]
    (container,) = node.spec["containers"]
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert volumes | {"/tmp"} <= mounts
    env = {variable["name"]: variable.get("value") for variable in container["env"]}
    for name in ("POOLHOUSE_STATE", "POOLHOUSE_CACHE", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR"):
        assert f"{name}={env[name]}" in text
        assert env[name] in mounts


@pytest.mark.parametrize(("part", "component"), [("control", "control"), ("node", "node")])
def test_ports_are_those_that_the_image_exposes(part, component):
    exposed = re.search(r"^EXPOSE (.*)$", dockerfile(part), re.MULTILINE)[1].split()
    pod = next(pod for pod in everything() if pod.component == component)
    ports = [str(port["containerPort"]) for port in pod.spec["containers"][0]["ports"]]
    assert ports == exposed


@pytest.mark.parametrize(
    ("part", "entry"),
    [
        ("control", ["poolhouse"]),
        ("node", ["poolhouse"]),
        ("relay", ["tini", "--", "turnserver"]),
    ],
)
def test_arguments_go_to_the_program_without_a_shell(part, entry):
    text = dockerfile(part)
    assert f"ENTRYPOINT {json.dumps(entry)}" in text
    assert re.search(r"^USER 10001:0$", text, re.MULTILINE)
    for pod in everything():
        assert pod.spec["securityContext"]["runAsUser"] == 10001
        assert pod.spec["securityContext"]["runAsGroup"] == 0
