"""The step before the first start: secrets of good length, for their maker's eyes, made once."""

import stat
import subprocess

import pytest

from poolhouse_control.relay.coturn import render
from poolhouse_control.relay.coturn_settings import CoturnSettings
from poolhouse_node.wire.codes import parse_invite
from tests.support.compose import DEPLOY, read_compose


def make(folder, address="desk.lan"):
    return subprocess.run(
        [DEPLOY / "make-secrets", address, folder], capture_output=True, text=True, check=False
    )


@pytest.fixture
def secrets(tmp_path):
    done = make(tmp_path)
    assert done.returncode == 0, done.stderr
    return {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}


def test_every_secret_of_the_compose_file_is_made(secrets):
    assert set(secrets) == set(read_compose("compose.yaml").content["secrets"])


def test_only_their_maker_can_read_them(secrets, tmp_path):
    for file in (tmp_path / "secrets", *(tmp_path / "secrets").iterdir(), tmp_path / ".env"):
        assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


def test_the_containers_run_as_who_can_read_them(secrets, tmp_path):
    env = dict(line.split("=") for line in (tmp_path / ".env").read_text().splitlines())
    assert env["POOLHOUSE_ADDRESS"] == "desk.lan"
    assert int(env["POOLHOUSE_UID"]) == (tmp_path / "secrets" / "invite").stat().st_uid
    assert int(env["POOLHOUSE_UID"]) > 0


def test_a_second_run_changes_nothing_and_fills_what_is_missing(secrets, tmp_path):
    (tmp_path / "secrets" / "turn-secret").unlink()
    assert make(tmp_path).returncode == 0
    again = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    assert again.pop("turn-secret") != secrets.pop("turn-secret")
    assert again == secrets


def test_redis_and_the_control_plane_get_one_password_also_when_one_file_was_lost(
    secrets, tmp_path
):
    def passwords():
        conf = (tmp_path / "secrets" / "redis-conf").read_text().splitlines()[0].split()[1]
        return conf, (tmp_path / "secrets" / "redis-url").read_text().split(":")[2].split("@")[0]

    first = passwords()
    assert first[0] == first[1]
    assert len(first[0]) == 43
    (tmp_path / "secrets" / "redis-url").unlink()
    assert make(tmp_path).returncode == 0
    second = passwords()
    assert second[0] == second[1] != first[0]


@pytest.mark.parametrize("attempt", range(5))
def test_the_link_is_one_that_devices_read(tmp_path, attempt):
    assert make(tmp_path).returncode == 0
    link = (tmp_path / "secrets" / "invite").read_text().strip()
    invite = parse_invite(link)
    assert link.startswith("http://desk.lan:8080/r/")
    assert len(invite.code) == 6
    assert len(invite.key) == 43


def test_coturn_takes_the_relay_secret(secrets):
    assert "static-auth-secret=" in render(
        CoturnSettings(realm="desk.lan"), secrets=[secrets["turn-secret"].strip()]
    )


def test_no_secret_is_said_on_the_screen(tmp_path):
    done = make(tmp_path)
    for file in (tmp_path / "secrets").iterdir():
        assert file.read_text().strip() not in done.stdout + done.stderr


def test_git_does_not_see_what_is_made():
    ignored = (DEPLOY.parent / ".gitignore").read_text().splitlines()
    assert {"deploy/.env", "deploy/secrets/"} <= set(ignored)


@pytest.mark.parametrize("address", ["http://desk.lan", "desk lan", "$(id)", ""])
def test_an_address_that_is_none_is_refused(tmp_path, address):
    done = make(tmp_path, address)
    assert done.returncode == (0 if address == "" else 2)
    assert (tmp_path / "secrets").exists() is (address == "")
