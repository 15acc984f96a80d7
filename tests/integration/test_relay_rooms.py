"""A whole room of real processes whose links all pass a real coturn."""

import asyncio
import json
import re
import time

import pytest

from poolhouse_control.relay.credentials import issue
from tests.support.coturn import OLD_SECRET, coturn
from tests.support.model import needs_model
from tests.support.program import Program, run

pytestmark = [
    pytest.mark.room,
    pytest.mark.webrtc,
    pytest.mark.coturn,
]


def has_answered_behind(relay, number: int, folder) -> dict:
    """Host, worker and guest offer relayed paths only; the host's status while they run."""
    made = issue(OLD_SECRET, ttl_s=600, now_s=time.time(), label="pooled")
    file = folder / "ice.json"
    servers = [{"urls": [relay.urls[number]]}]
    servers[0] |= {"username": made.username, "credential": made.credential}
    file.write_text(json.dumps(servers))
    env = {
        "POOLHOUSE_ICE": str(file),
        "POOLHOUSE_RELAY_ONLY": "1",
        "SSL_CERT_FILE": str(relay.certificate.cert),
    }
    programs = []

    def start(*arguments: str, state: str, **more: str) -> Program:
        programs.append(
            Program.start(*arguments, env=env | {"POOLHOUSE_STATE": str(folder / state)} | more)
        )
        return programs[-1]

    try:
        control = start(
            *("control", "--host", "127.0.0.1", "--port", "0", "--admin-port", "0", "--json"),
            state="control",
        )
        control.until_answering()
        env["POOLHOUSE_SIGNAL"] = json.loads(control.stdout.splitlines()[0])["signal_url"]
        host = start("host", "--max-tokens", "10", state="host")
        host.until("poolhouse join '")
        link = re.search(r"poolhouse join '([^']+)'", host.stderr)[1]
        worker = start("join", "--name", "cellar", state="worker", POOLHOUSE_ROOM=link)
        worker.until("is online")
        asked = start("ask", link, "What is a pool?", "--json", state="guest")
        assert asked.end() == 0, asked.stderr
        assert asked.json()["answer"]
        state = {"POOLHOUSE_STATE": str(folder / "host")}
        assert "through a relay (" in run("room", "status", env=state).stdout
        return run("room", "status", "--json", env=state).json()
    finally:
        for program in programs:
            program.kill()


@needs_model
@pytest.mark.parametrize("number", [0, 1, 2], ids=["udp", "tcp", "tls"])
async def test_a_room_answers_over_a_relay_and_its_status_says_so(tmp_path, number):
    async with coturn(tmp_path, user_quota=64) as relay:
        status = await asyncio.to_thread(has_answered_behind, relay, number, tmp_path)
    (cellar,) = [device for device in status["devices"] if device["name"] == "cellar"]
    assert "relay" in cellar["transport"].split(" ")[1]
    assert cellar["layers"]
