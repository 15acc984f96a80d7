"""Each image is built and run: any uid, a read-only root, its health check, its end.

torch makes it slow and large: some ten minutes, and at times 30 GB of disk.
"""

import json
import os
import random
import shutil
import signal
import time
from pathlib import Path

import pytest

from poolhouse_node.wire.codes import make_code
from tests.support.images import Container, first_process, images, kill_container
from tests.support.model import smollm2_path
from tests.support.namespaces import networks
from tests.support.program import Program

pytestmark = [pytest.mark.long, pytest.mark.netns, pytest.mark.timeout(3600)]

MOST_S = 10.0
"""What an engine waits after SIGTERM before it kills."""
KEY = "abcdefghijklmnopqrstuvwxyz012345"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    with images(tmp_path_factory.mktemp("images")) as made:
        yield made


@pytest.fixture
def uid():
    """One that no image knows."""
    return random.randrange(100_000, 2_000_000_000)


def ends_on_sigterm(program: Program) -> int:
    """The exit status after SIGTERM to the first process, which must come in time."""
    began_at = time.monotonic()
    os.kill(first_process(program), signal.SIGTERM)
    status = program.end(MOST_S)
    assert time.monotonic() - began_at < MOST_S
    return status


def can_write_only_where_it_should(container: Container, program: Program) -> None:
    assert container.execute(program, "touch", "/opt/here").returncode != 0
    assert container.execute(program, "touch", "/usr/here").returncode != 0
    assert container.execute(program, "touch", "/tmp/here").returncode == 0
    said = container.execute(program, "cat", "/proc/1/status", "/proc/1/cmdline").stdout
    assert f"\nUid:\t{container.uid}\t" in said
    assert "\nCapBnd:\t0000000000000000\n" in said
    assert "\nNoNewPrivs:\t1\n" in said
    assert "sh\0-" not in said


def test_the_control_plane(store, tmp_path, uid):
    image = store.build("control")
    with image.mounted() as root, networks("control") as net:
        container = Container(image.config, root, tmp_path, net["control"], uid)
        program = container.start()
        try:
            assert container.is_well(program), program.stderr
            can_write_only_where_it_should(container, program)
            assert ends_on_sigterm(program) == 0
        finally:
            kill_container(program)
        assert '"event": "control.stopped"' in program.stderr
        sbom = (root / "usr/share/doc/poolhouse/sbom.cdx.json").read_text()
        assert '"litestar"' in sbom
        assert '"torch"' not in sbom
        assert "python3" in debian_parts(root)
        assert not list((root / "opt/poolhouse").rglob("site-packages/pip"))


def test_a_relay_with_the_file_of_the_control_plane(store, tmp_path, uid):
    state, inside = tmp_path / "state", "/var/lib/poolhouse"
    state.mkdir()
    (state / "secret").write_text("0123456789abcdef" * 4)
    os.chown(state, uid, 0)
    control = store.build("control")
    env = {
        "POOLHOUSE_COTURN_REALM": "desk.lan",
        "POOLHOUSE_COTURN_LOG": "stdout",
        "POOLHOUSE_COTURN_PIDFILE": "/tmp/pid",
        "POOLHOUSE_COTURN_USERDB": "/tmp/turndb",
        "POOLHOUSE_COTURN_RUN_AS": "",
        "POOLHOUSE_TURN_SECRET_FILE": f"{inside}/secret",
    }
    with networks("relay") as net:
        with control.mounted() as root:
            maker = Container(
                control.config, root, tmp_path, net["relay"], uid, env, {state: inside}
            ).start("turn", "config", "--output", f"{inside}/turnserver.conf")
            assert maker.end() == 0, maker.stderr
        relay = store.build("relay")
        with relay.mounted() as root:
            assert {"coturn", "tini"} <= debian_parts(root)
            (tmp_path / "conf").mkdir()
            container = Container(
                relay.config, root, tmp_path, net["relay"], uid, {}, {state: "/mnt"}
            )
            program = container.start("-c", "/mnt/turnserver.conf", "--log-file", "stdout")
            try:
                assert container.is_well(program), program.stdout
                assert ends_on_sigterm(program) == 143
            finally:
                kill_container(program)
    log = program.stdout + program.stderr
    assert "Bad configuration format" not in log
    assert "CONFIG ERROR" not in log


def test_a_room_of_nodes(store, tmp_path, uid):
    control, node = store.build("control"), store.build("node", "cpu")
    invite = f"http://control/r/{make_code(random.randbytes)}#k={KEY}"
    with (
        control.mounted() as control_root,
        node.mounted() as root,
        networks("control", "host", "worker") as net,
    ):
        said = {
            "POOLHOUSE_SIGNAL": f"http://{net['control'].address}:8080",
            "POOLHOUSE_STUN": "none",
            "POOLHOUSE_PLEDGE": "1",
            "POOLHOUSE_THREADS": "1",
        }
        (tmp_path / "c").mkdir()
        plane = Container(control.config, control_root, tmp_path / "c", net["control"], uid)
        (tmp_path / "h").mkdir()
        host = Container(
            node.config, root, tmp_path / "h", net["host"], uid,
            said | {"POOLHOUSE_INVITE": invite, "POOLHOUSE_NAME": "host"},
        )  # fmt: skip
        (tmp_path / "w").mkdir()
        worker = Container(
            node.config, root, tmp_path / "w", net["worker"], uid,
            said | {"POOLHOUSE_ROOM": invite, "POOLHOUSE_NAME": "cellar"},
        )  # fmt: skip
        for device in (host, worker):
            give_model(device)
        programs = [plane.start()]
        try:
            assert plane.is_well(programs[0]), programs[0].stderr
            programs.append(hosting := host.start("host", "--max-tokens", "5"))
            hosting.until("is open", 120)
            assert host.is_well(hosting), hosting.stderr
            programs.append(working := worker.start())
            hosting.until("is online", 120)
            assert worker.is_well(working), working.stderr
            can_write_only_where_it_should(worker, working)
            status = host.execute(hosting, "poolhouse", "room", "status")
            assert "cellar, layers" in status.stdout, status
            assert ends_on_sigterm(working) == 143
            # It said so: a device that is only silent is missed after 15 s.
            hosting.until("cellar left", 5)
            assert ends_on_sigterm(hosting) == 143
        finally:
            for program in programs:
                kill_container(program)


def debian_parts(root: Path) -> set[str]:
    """Names in the list that the image has of Debian's packages."""
    listed = (root / "usr/share/doc/poolhouse/debian.cdx.json").read_text()
    return {each["name"] for each in json.loads(listed)["components"]}


def give_model(container: Container) -> None:
    """What `poolhouse models pull` would have fetched."""
    model = smollm2_path()
    folder = container.volume("/var/cache/poolhouse") / model.parent.name
    folder.mkdir()
    os.chown(folder, container.uid, 0)
    shutil.copy(model, folder)


def test_the_cuda_image_is_the_cpu_image_with_what_triton_needs(store):
    cpu, cuda = store.build("node", "cpu"), store.build("node", "cuda")
    assert cuda.config["User"] == cpu.config["User"]
    assert cuda.config["Healthcheck"] == cpu.config["Healthcheck"]
    assert "NVIDIA_VISIBLE_DEVICES=all" in cuda.config["Env"]
    with cuda.mounted() as root:
        assert (root / "usr/bin/gcc").exists()
        assert {"gcc", "libgomp1"} <= debian_parts(root)
    with cpu.mounted() as root:
        assert "libgomp1" in debian_parts(root)
        assert "gcc" not in debian_parts(root)
