"""The script that `helm test` runs, against a running control plane."""

import os
import subprocess
import sys

import pytest

from tests.support.chart import CHART, containers, pods, render
from tests.support.control_process import control_process

SCRIPT = CHART / "files" / "check_connection.py"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(60)]


def run_script(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", SCRIPT.read_text(), *arguments],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


async def checked(*arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    import asyncio

    async with control_process(**settings) as control:
        url = control.signal_url.removesuffix(settings.get("POOLHOUSE_PATH", "/"))
        return await asyncio.to_thread(run_script, url, *arguments)


RELAY = {
    "POOLHOUSE_TURN_SECRET": "s" * 32,
    "POOLHOUSE_TURN_HOST": "relay.example.org",
    "POOLHOUSE_TURN_PROBE_EVERY_S": "0",
}
WITH_TOKEN = {"POOLHOUSE_TURN_REQUIRE": "token", "POOLHOUSE_API_TOKENS": "t" * 32}


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "none, no relay is configured"),
        (RELAY, "handed out"),
        (RELAY | WITH_TOKEN, "for those who show a token"),
    ],
)
async def test_a_control_plane_that_is_well_passes(settings, words):
    done = await checked(**settings)
    assert done.returncode == 0, done.stderr
    assert words in done.stdout


async def test_another_path_and_key_are_told():
    arguments = ("/pool/", "other")
    done = await checked(*arguments, POOLHOUSE_PATH="/pool/", POOLHOUSE_KEY="other")
    assert done.returncode == 0, done.stderr


async def test_a_wrong_key_fails():
    done = await checked("/", "other")
    assert done.returncode == 1
    assert "Signaling answers" in done.stderr


def test_nobody_there_fails():
    assert run_script("http://127.0.0.1:1").returncode == 1


def test_the_pod_runs_the_script_with_the_settings_of_the_control_plane():
    settings = {"POOLHOUSE_PATH": "/pool/", "POOLHOUSE_KEY": "other"}
    (pod,) = [pod for pod in pods(render({"control": {"settings": settings}}))
              if pod.component == "test"]  # fmt: skip
    (container,) = containers(pod)
    assert container["command"][:2] == ["python3", "-c"]
    assert container["command"][2].strip() == SCRIPT.read_text().strip()
    assert container["args"][1:] == ["/pool/", "other"]
    assert pod.metadata["annotations"]["helm.sh/hook"] == "test"
    assert "POOLHOUSE_PATH" not in os.environ
