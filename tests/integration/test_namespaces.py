"""Rooms across networks that have no path to each other: they meet at a relay or not at all."""

import asyncio
import json
import re
import zipfile
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from poolhouse_node.rtc.udp import udp_gets_out
from poolhouse_node.weights.source import WHEELS
from tests.support.coturn import OLD_SECRET, Coturn, coturn
from tests.support.model import needs_model, smollm2_path
from tests.support.namespaces import Namespace, Networks, networks
from tests.support.program import Program, run
from tests.support.range_server import RangeServer, serve_ranges

pytestmark = [pytest.mark.room, pytest.mark.webrtc, pytest.mark.netns]

STRICT = "This network blocks UDP and no relay is set"
QUESTION = "What is a pool?"
SAID = ("--max-tokens", "24", "--split", "15,15")
TRANSPORTS = {"udp": 0, "tcp": 1, "tls": 2}


@dataclass
class Apart:
    """Two homes that both reach a yard, and not each other."""

    net: Networks
    folder: Path
    programs: ExitStack

    def start(self, place: str, *arguments: str, **env: str) -> Program:
        state = {"POOLHOUSE_STATE": str(self.folder / f"state-{arguments[0]}")}
        program = self.net[place].start(*arguments, env=state | env)
        self.programs.callback(program.kill)
        return program

    def start_control(self, **env: str) -> str:
        """A control plane in the yard; its address."""
        yard, port = self.net["yard"], str(self.net["yard"].free_port())
        allowed = {"POOLHOUSE_TURN_ALLOWED_ORIGINS": f"http://{yard.address}:{port}"}
        control = self.start(
            *("yard", "control", "--host", yard.address, "--port", port),
            *("--admin-port", "0", "--json"),
            **(allowed | env),
        )
        control.until_answering()
        return json.loads(control.stdout.splitlines()[0])["signal_url"]

    def status(self, *words: str) -> Program:
        return run("room", "status", *words, env={"POOLHOUSE_STATE": f"{self.folder}/state-host"})

    def device(self, name: str) -> dict[str, Any]:
        """What the host's status says of a device."""
        devices = self.status("--json").json()["devices"]
        return next(device for device in devices if device["name"] == name)


@pytest.fixture
def apart(tmp_path):
    with networks("attic", "cellar", "yard") as net, ExitStack() as programs:
        net.cut("attic", "cellar")
        yield Apart(net, tmp_path, programs)


def packed_model(folder: Path) -> tuple[str, bytes]:
    """The package that carries the model, as an index would have it: its name and content."""
    model = smollm2_path()
    package = WHEELS[model.name]
    stem = f"{package.package.replace('-', '_')}-{package.version}"
    file = folder / f"{stem}-py3-none-any.whl"
    about = f"Metadata-Version: 2.1\nName: {package.package}\nVersion: {package.version}\n"
    with zipfile.ZipFile(file, "w") as archive:
        archive.write(model, f"model/{model.name}")
        archive.writestr(f"{stem}.dist-info/METADATA", about)
        archive.writestr(f"{stem}.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{stem}.dist-info/RECORD", "")
    return file.name, file.read_bytes()


def has_answered(apart: Apart, relay: Coturn, url: str, index: RangeServer) -> str:
    """Host in the attic, worker in the cellar, guest in the yard; the answer."""
    signal = {"POOLHOUSE_SIGNAL": apart.start_control(TURN_SECRET=OLD_SECRET, TURN_URLS=url)}
    signal["SSL_CERT_FILE"] = str(relay.certificate.cert)
    signal["POOLHOUSE_STUN"] = f"stun:{relay.address}:{relay.port}"  # others do not answer here
    host = apart.start("attic", "host", *SAID, **signal)
    host.until("poolhouse join '")
    link = re.search(r"poolhouse join '([^']+)'", host.stderr)[1]
    (wheel,) = index.files
    from_index = {
        "POOLHOUSE_CACHE": str(apart.folder / "cache"),
        "PIP_CONFIG_FILE": "/dev/null",
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": f"{index.url}/{wheel}",
        "PIP_TRUSTED_HOST": apart.net["yard"].address,
    }
    worker = apart.start(
        "cellar", "join", "--name", "cellar", POOLHOUSE_ROOM=link, **signal, **from_index
    )
    worker.until("is online")
    host.until("; links: through a relay (")
    asked = apart.start("yard", "ask", link, QUESTION, "--json", **signal)
    assert asked.end() == 0, asked.stderr
    return asked.json()["answer"]


@needs_model
@pytest.mark.coturn
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_room_whose_devices_meet_only_at_a_relay(apart, tmp_path, transport):
    name, content = packed_model(tmp_path)
    yard = apart.net["yard"]
    if transport == "tls":  # what it is for: nothing else gets out
        apart.net.block_udp("attic")
        apart.net.block_udp("cellar")
    with yard.entered(), serve_ranges(RangeServer({name: content}), yard.address) as index:
        where = {"address": yard.address, "relay_address": yard.address}
        async with coturn(tmp_path, **where, ipv6=False) as relay:
            url = relay.urls[TRANSPORTS[transport]]
            answer = await asyncio.to_thread(has_answered, apart, relay, url, index)
            cellar = apart.device("cellar")
            words = apart.status().stdout
    assert cellar["layers"] == [15, 30]
    assert "relay" in cellar["transport"].split(" ")[1]
    assert "through a relay (" in words
    assert name in {path for path, _ in index.requests}
    assert apart.net["attic"].sent_bytes() < len(content) / 10
    alone = run("up", "--devices", "1", "--ask", QUESTION, "--max-tokens", "24", "--json").json()
    assert answer == alone["answer"]


@needs_model
def test_links_outlive_a_network_that_pauses_for_six_seconds(apart):
    apart.net.mend("attic", "cellar")
    signal = {"POOLHOUSE_SIGNAL": apart.start_control(), "POOLHOUSE_STUN": "none"}
    host = apart.start("attic", "host", "--open", "--code", "4TK-G9P", *SAID, **signal)
    host.until("is open")
    worker = apart.start("cellar", "join", "4TK-G9P", "--name", "cellar", **signal)
    worker.until("is online")
    apart.net.cut("attic", "cellar")
    while (cellar := apart.device("cellar"))["heard_s"] < 6:
        assert cellar["layers"] == [15, 30]
    apart.net.mend("attic", "cellar")
    asked = apart.start("attic", "ask", "4TK-G9P", QUESTION, "--json", **signal)
    assert asked.end() == 0, asked.stderr
    assert asked.json()["answer"]
    assert "- cellar" not in host.stderr


def has_gone_round(apart: Apart, url: str) -> Program:
    """The path between host and worker is cut for good; the answer of a guest afterwards."""
    apart.net.mend("attic", "cellar")
    signal = {"POOLHOUSE_SIGNAL": apart.start_control(TURN_SECRET=OLD_SECRET, TURN_URLS=url)}
    signal["POOLHOUSE_STUN"] = "none"
    host = apart.start("attic", "host", *SAID, **signal)
    host.until("poolhouse join '")
    link = re.search(r"poolhouse join '([^']+)'", host.stderr)[1]
    worker = apart.start("cellar", "join", "--name", "cellar", POOLHOUSE_ROOM=link, **signal)
    worker.until("is online")
    assert ", direct (" in apart.status().stdout
    host.until("; links: direct (")
    apart.net.cut("attic", "cellar")
    worker.until("Back in the room.")
    asked = apart.start("attic", "ask", link, QUESTION, "--json", **signal)
    asked.end()
    return asked


@needs_model
@pytest.mark.coturn
@pytest.mark.long  # a dead path is given 15 s
async def test_a_room_goes_on_through_the_relay_when_its_path_is_cut_and_says_so(apart, tmp_path):
    yard = apart.net["yard"]
    with yard.entered():
        where = {"address": yard.address, "relay_address": yard.address}
        async with coturn(tmp_path, **where, ipv6=False) as relay:
            asked = await asyncio.to_thread(has_gone_round, apart, relay.urls[0])
            cellar, words = apart.device("cellar"), apart.status().stdout
    assert asked.process.returncode == 0, asked.stderr
    assert asked.json()["answer"]
    assert cellar["layers"] == [15, 30]
    assert "relay" in cellar["transport"].split(" ")[1]
    assert "through a relay (" in words


@asynccontextmanager
async def stun_in(yard: Namespace, folder: Path) -> AsyncIterator[str]:
    """A STUN server in the yard; its address."""
    with yard.entered():
        async with coturn(
            folder, address=yard.address, relay_address=yard.address, ipv6=False
        ) as server:
            yield f"stun:{yard.address}:{server.port}"


@pytest.mark.coturn
async def test_whether_udp_gets_out(apart, tmp_path):
    async def from_the_attic() -> bool | None:
        with apart.net["attic"].entered():
            return await udp_gets_out([url], timeout_s=1)

    async with stun_in(apart.net["yard"], tmp_path) as url:
        assert await from_the_attic() is True
        apart.net.block_udp("attic")
        assert await from_the_attic() is False
        apart.net.allow_udp("attic")
        assert await from_the_attic() is True


@needs_model
@pytest.mark.coturn
@pytest.mark.long  # as long as a path is looked for; tests/rtc/test_dialer.py has the short form
async def test_who_sits_behind_a_firewall_is_told_so(apart, tmp_path):
    def join(stun: str) -> tuple[int, str]:
        signal = {"POOLHOUSE_SIGNAL": apart.start_control(), "POOLHOUSE_STUN": stun}
        host = apart.start("attic", "host", "--open", "--code", "4TK-G9P", **signal)
        host.until("is open")
        apart.net.mend("attic", "cellar")
        apart.net.block_udp("cellar")
        lost = apart.start("cellar", "join", "4TK-G9P", **signal)
        return lost.end(110), lost.stderr

    async with stun_in(apart.net["yard"], tmp_path) as stun:
        status, said = await asyncio.to_thread(join, stun)
    assert status == 1
    assert STRICT in said.splitlines()[-1]
    assert "network.udp_blocked: " in said
