"""The commands of tutorials and how-tos do what the pages say: they are typed from the Markdown."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.support.coturn import Certificate
from tests.support.model import needs_model, smollm2_path
from tests.support.namespaces import Networks, networks
from tests.support.walk import Machine, Walk, clone, lend_packages, set_up

pytestmark = [pytest.mark.room, pytest.mark.webrtc, pytest.mark.netns, pytest.mark.timeout(600)]

CLONE = "poolhouse"
LOOPBACK = "127.0.0.1"


@pytest.fixture(scope="module")
def lent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    smollm2_path()  # in the cache before a page asks for it: nothing is reached from inside
    return lend_packages(tmp_path_factory.mktemp("lent") / "packages")


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, lent: Path) -> Path:
    """A clone with its environment, for pages that take it for done."""
    cloned = clone(tmp_path_factory.mktemp("installed") / CLONE, lent)
    set_up(cloned)
    return cloned


@contextmanager
def switched_on(net: Networks, names: dict[str, dict[str, str]], folder: Path) -> Iterator[Walk]:
    """Machines, and what each calls the others; they are off afterwards."""
    with ExitStack() as on:
        walk = on.enter_context(Walk({}))  # it ends when its machines are off
        for name, known in names.items():
            walk.machines[name] = on.enter_context(Machine(net[name], folder / name, known))
        yield walk


@pytest.fixture
def one_machine(tmp_path: Path, installed: Path) -> Iterator[Walk]:
    """A machine on which every new terminal is in the environment."""
    known = dict.fromkeys(("desk.lan", "redis.example.org", "room.example.org"), LOOPBACK)
    with networks("here") as net, switched_on(net, {"here": known}, tmp_path) as walk:
        walk.machines[""] = walk.machines["here"]
        walk.before = f". {installed}/.venv/bin/activate\n"
        yield walk


@needs_model
def test_a_first_room(one_machine, lent):
    one_machine.before, one_machine.at = "", CLONE
    clone(one_machine.machines[""].home / CLONE, lent)
    one_machine.through("docs/tutorial/first-room.md")


@needs_model
def test_who_gets_in(one_machine):
    one_machine.type("poolhouse control", terminal="signaling", until="control.started")
    host = "poolhouse host --signal desk.lan:8080"
    one_machine.type(host, terminal="host", until="Waiting for 1 device(s)")
    one_machine.through("docs/how-to/who-gets-in.md")
    one_machine.screen("", "host").until(lambda text: "- cellar" in text, "- cellar")


@needs_model
def test_keep_a_room(one_machine):
    one_machine.type("poolhouse control", terminal="signaling", until="control.started")
    one_machine.through("docs/how-to/keep-a-room.md")


@needs_model
def test_a_model_of_ones_own(one_machine):
    models = one_machine.machines[""].home / "models"
    models.mkdir()
    (models / "my-model.gguf").symlink_to(smollm2_path())
    one_machine.type("poolhouse control", terminal="signaling", until="control.started")
    one_machine.through("docs/how-to/own-model.md")


def give_certificate(walk: Walk, folder: Path, made_in: Path, host: str) -> None:
    """A certificate in a folder of the machine, which its programs trust."""
    certificate = Certificate.make(made_in, host=host)
    walk.type(
        f"mkdir -p {folder}; cd {folder}\n"
        f"cp {certificate.cert} fullchain.pem; cp {certificate.key} privkey.pem",
        terminal="certificates",
    )
    walk.before += f"export SSL_CERT_FILE={folder}/fullchain.pem\n"


def test_the_control_plane(one_machine, tmp_path):
    give_certificate(one_machine, Path("/etc/poolhouse"), tmp_path, "room.example.org")
    one_machine.through("docs/how-to/run-the-control-plane.md")
    assert "poolhouse_" in one_machine.screen("", "2").text  # series of /metrics


def test_a_room_of_a_browser(one_machine, tmp_path):
    give_certificate(one_machine, Path("/etc/poolhouse"), tmp_path, "room.example.org")
    one_machine.through("docs/tutorial/browser-room.md")


@pytest.mark.redis
def test_several_replicas(one_machine):
    redis = "redis-server --save '' --bind 127.0.0.1"
    one_machine.type(redis, terminal="redis", until="Ready to accept connections")
    one_machine.through("docs/how-to/scale-out.md")
    one_machine.screen("", "1").until(lambda text: "drain" in text, "drain")


@pytest.mark.coturn
def test_a_relay(one_machine, tmp_path):
    live = Path("/etc/letsencrypt/live/relay.example.org")
    give_certificate(one_machine, live, tmp_path, "relay.example.org")
    one_machine.through("docs/how-to/relay.md")
    etc = one_machine.machines[""].etc
    file = (etc / "turnserver.conf").read_text()
    assert "denied-peer-ip=10.0.0.0-10.255.255.255" in file
    assert "static-auth-secret" not in file
    assert (
        len((etc / "poolhouse" / "turn-secret").read_text().split()) == 2
    )  # the new one and the one before


@pytest.fixture
def two_computers(tmp_path: Path) -> Iterator[Walk]:
    """Two that reach each other."""
    with networks("desk", "attic") as net:
        known = {"desk.lan": net["desk"].address}
        with switched_on(net, {"desk": known, "attic": known}, tmp_path) as walk:
            yield walk


@needs_model
def test_two_machines(two_computers, installed):
    two_computers.before = f". {installed}/.venv/bin/activate\n"
    two_computers.through("docs/how-to/two-machines.md")


@needs_model
@pytest.mark.long  # four processes load in a demo and two more in a room of two computers
def test_the_readme(two_computers, lent):
    """`make demo` sets the first computer up; the second one does as the text says."""
    for machine in two_computers.machines.values():
        clone(machine.home / CLONE, lent)
    two_computers.at = CLONE
    two_computers.type("make setup", on="attic", terminal="setup")
    two_computers.machines[""] = two_computers.machines["desk"]
    two_computers.before = "[ ! -e .venv/bin/poolhouse ] || . .venv/bin/activate\n"
    two_computers.through("README.md")
    assert "tok/s · first after" in two_computers.screen("").text


@pytest.fixture
def two_networks(tmp_path: Path) -> Iterator[Walk]:
    """Two computers with no path to each other, and a server that both reach."""
    names = ("desk", "attic", "meet.lan")
    with networks(*names) as net:
        net.cut("desk", "attic")
        known = {name: net[name].address for name in names}
        with switched_on(net, dict.fromkeys(names, known), tmp_path) as walk:
            yield walk


@needs_model
@pytest.mark.coturn
def test_from_a_clone_to_a_room_over_two_networks(two_networks, lent):
    """As a newcomer, by the page alone: what it does not say is not done."""
    for machine in two_networks.machines.values():
        clone(machine.home / CLONE, lent)
    two_networks.at = CLONE
    two_networks.through("docs/tutorial/two-networks.md")
    secret = (two_networks.machines["meet.lan"].home / CLONE / "turn-secret").read_text().strip()
    assert secret not in two_networks.shown()
