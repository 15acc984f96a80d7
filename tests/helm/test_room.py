"""The pods of a room as processes: their arguments, variables, secrets and probes."""

import json
import re
import signal
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.support.chart import Pod, pods, render, scenario
from tests.support.program import Program

pytestmark = [pytest.mark.room, pytest.mark.model, pytest.mark.webrtc, pytest.mark.timeout(120)]

FREE_PORTS = {
    "POOLHOUSE_HOST": "127.0.0.1",
    "POOLHOUSE_PORT": "0",
    "POOLHOUSE_ADMIN_HOST": "127.0.0.1",
    "POOLHOUSE_ADMIN_PORT": "0",
    "POOLHOUSE_METRICS_BIND": "127.0.0.1",
    "POOLHOUSE_METRICS_PORT": "0",
}
"""Processes of one machine cannot all have the ports that pods have."""


class Cluster:
    """Starts pods as processes on this machine."""

    def __init__(self, folder: Path, link: str) -> None:
        self.folder = folder
        self.secrets = folder / "secrets"
        self.signal = ""
        self.programs: list[Program] = []
        self.link = link

    def start(self, pod: Pod, name: str) -> Program:
        (container,) = pod.spec["containers"]
        env = {each["name"]: each.get("value", name) for each in container["env"]}
        env = {variable: self._here(value, name) for variable, value in env.items()}
        env |= {key: value for key, value in FREE_PORTS.items() if key in env}
        env.pop("POOLHOUSE_CACHE", None)  # the model is in this machine's
        if "POOLHOUSE_SIGNAL" in env:
            env |= {"POOLHOUSE_SIGNAL": self.signal, "POOLHOUSE_MODEL": "smollm2-135m"}
        json_line = ["--json"] if container["args"] == ["control"] else []
        self.programs.append(Program.start(*container["args"], *json_line, env=env))
        return self.programs[-1]

    def _here(self, value: str, name: str) -> str:
        """A path of the container as one of this machine, with the secret's file in place."""
        if value.startswith("/run/secrets/"):
            file = self.folder / value.lstrip("/")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(self.link + "\n")
            return str(file)
        return str(self.folder / name / value.lstrip("/")) if value.startswith("/var/") else value


def answers(url: str) -> int:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status
    except urllib.error.HTTPError as error:
        return error.code


def probe_paths(pod: Pod) -> set[str]:
    container = pod.spec["containers"][0]
    probes = (container[f"{name}Probe"] for name in ("startup", "readiness", "liveness"))
    return {probe["httpGet"]["path"] for probe in probes}


def by_component(values: dict[str, Any]) -> dict[str, Pod]:
    return {pod.component: pod for pod in pods(render(values)) if pod.owner["kind"] != "Pod"}


@pytest.fixture
def cluster(tmp_path):
    made = Program.start("room", "new", "--signal", "http://room.example.org")
    assert made.end() == 0
    cluster = Cluster(tmp_path, made.stdout.strip())
    yield cluster
    for program in cluster.programs:
        program.kill()


def test_a_room_answers_from_the_charts_own_commands_and_leaves_in_order(cluster, tmp_path):
    values = scenario("host-room")
    values["host"]["options"] = {"max-tokens": 12}
    pod = by_component(values)
    control = cluster.start(pod["control"], "control-0")
    control.until_answering()
    said = json.loads(control.stdout.splitlines()[0])
    cluster.signal = said["signal_url"]
    admin = said["admin_url"].rstrip("/")
    assert {answers(f"{admin}{path}") for path in probe_paths(pod["control"])} == {200}

    host = cluster.start(pod["host"], "demo-poolhouse-host-0")
    host.until("is open")
    nodes = [cluster.start(pod["node"], f"demo-poolhouse-cpu-{n}") for n in range(2)]
    host.until("is online")
    for node in nodes:
        node.until("/metrics")
        url = re.search(r"(http://127\.0\.0\.1:\d+)/metrics", node.stderr)[1]
        assert {answers(f"{url}{path}") for path in probe_paths(pod["node"])} == {200}

    env = {"POOLHOUSE_STATE": str(tmp_path / "guest"), "POOLHOUSE_ROOM": cluster.link}
    asked = Program.start(
        *("ask", "--json", "--signal", cluster.signal, cluster.link, "What is a pool?"), env=env
    )
    cluster.programs.append(asked)
    assert asked.end() == 0, asked.stderr
    assert asked.json()["answer"]

    nodes[1].process.send_signal(signal.SIGTERM)
    assert nodes[1].end() == 143
    host.until("demo-poolhouse-cpu-1 left")
    key = cluster.link.partition("k=")[2]
    assert not any(key in program.stderr for program in (control, host, *nodes))
