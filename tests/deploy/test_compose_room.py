"""The compose file's services as plain processes: a room answers through them."""

import json
import re
import shlex
import shutil
import time
from pathlib import Path

import pytest

from tests.support.compose import read_compose
from tests.support.compose_processes import POOLHOUSE, ComposeProcesses
from tests.support.model import needs_model, smollm2_path
from tests.support.namespaces import networks
from tests.support.program import PATIENCE_S

pytestmark = [
    pytest.mark.room,
    pytest.mark.webrtc,
    pytest.mark.redis,
    pytest.mark.coturn,
    pytest.mark.netns,
    pytest.mark.prometheus,
]

PROGRAM = shlex.join(POOLHOUSE)


@pytest.fixture
def services(tmp_path):
    """The file's services; the machine has the relay's address, as that one is on no bridge."""
    with networks(*read_compose("compose.yaml").services) as net:
        address = net["relay"].address
        # Behind the address of a private network two relayed devices must be allowed to meet.
        env = {"POOLHOUSE_ADDRESS": address, "POOLHOUSE_COTURN_ALLOWED_PEERS": address}
        compose = read_compose("compose.yaml", env=env)
        (tmp_path / "short.toml").write_text("[host]\nmax_tokens = 12\n")
        env = {"POOLHOUSE_THREADS": "1", "POOLHOUSE_CONFIG": str(tmp_path / "short.toml")}
        with ComposeProcesses(compose, net, tmp_path, env) as running:
            yield running


def give_model(models: Path) -> None:
    """What the host would fetch when it is started for the first time."""
    model = smollm2_path()
    shutil.copytree(model.parent, models / model.parent.name)


def everything_is_scraped(services: ComposeProcesses) -> None:
    """Wait until Prometheus has reached every target of its file."""
    url = "http://127.0.0.1:9090/api/v1/query?query=up"
    fetch = f"import urllib.request; print(urllib.request.urlopen({url!r}).read().decode())"
    deadline = time.monotonic() + PATIENCE_S
    values: dict[str, str] = {}
    while len(values) < 4 or set(values.values()) != {"1"}:
        assert time.monotonic() < deadline, values
        asked = services.execute("prometheus", shlex.join([POOLHOUSE[0], "-c", fetch]))
        found = json.loads(asked.stdout)["data"]["result"]
        values = {each["metric"]["instance"]: each["value"][1] for each in found}


@needs_model
def test_a_room_answers_through_the_services(services):
    give_model(services.volume("models"))
    services.start("redis")
    services.until_healthy("redis")
    assert services.start("relay-config").end() == 0
    relay = services.start("relay")
    control = services.start("control")
    services.start("prometheus")
    services.until_healthy("control")
    host = services.start("host")
    host.until("is open")
    workers = [services.start(name) for name in ("worker-1", "worker-2")]
    host.until("is online", 120)
    asked = services.execute("ask", f"echo What is a swimming pool? | {PROGRAM} ask")
    assert asked.process.returncode == 0, asked.stderr
    assert "pool" in asked.stdout
    for device in ("host", "worker-1", "worker-2"):
        services.until_healthy(device)
    everything_is_scraped(services)
    check = f"{PROGRAM} turn check --control http://control:8080"
    checked = services.execute("ask", check)
    assert checked.process.returncode == 0, checked.stdout + checked.stderr
    for program in (*workers, host, control):
        program.process.terminate()
    assert [program.end(10) for program in (*workers, host, control)] == [143, 143, 143, 0]
    log = relay.stdout + relay.stderr
    assert not re.search(r"Bad configuration format|CONFIG\w* (?:ERROR|ALERT)|WARNING", log), log
    # What a container prints goes to a log that others read.
    secret = (services.folder / "secrets" / "invite").read_text().partition("#k=")[2].strip()
    for program in (host, control, relay, *workers):
        assert secret not in program.stdout + program.stderr
