"""Settings from environment and arguments; errors are sentences."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import pytest

from poolhouse_control.errors import SettingsError
from poolhouse_control.settings import Settings, describe

if TYPE_CHECKING:
    from pathlib import Path


def test_defaults() -> None:
    settings = Settings.load({})
    assert settings == Settings()
    assert (settings.port, settings.admin_port) == (8080, 9090)
    assert settings.admin_host == "127.0.0.1", "metrics are private unless told otherwise"
    assert not settings.allow_discovery
    assert settings.limits.expire_after_s == 5.0


def test_the_environment_is_read() -> None:
    settings = Settings.load(
        {
            "POOLHOUSE_PORT": "0",
            "POOLHOUSE_PATH": "signal",
            "POOLHOUSE_ALLOW_DISCOVERY": "yes",
            "POOLHOUSE_ORIGINS": "https://A.example/, http://localhost:3000",
            "POOLHOUSE_ALIVE_TIMEOUT_S": "90.5",
            "POOLHOUSE_MAX_PEERS": "7",
            "PORT": "99",
        }
    )
    assert settings.port == 0
    assert settings.path == "/signal/"
    assert settings.allow_discovery
    assert settings.origins == ("https://a.example", "http://localhost:3000")
    assert settings.limits.alive_timeout_s == 90.5
    assert settings.limits.max_peers == 7


def test_an_argument_wins_and_none_means_not_given() -> None:
    environ = {"POOLHOUSE_PORT": "1", "POOLHOUSE_KEY": "mine"}
    settings = Settings.load(environ, port=2, key=None, allow_discovery=True, origins=["http://a"])
    assert settings.port == 2
    assert settings.key == "mine"
    assert settings.allow_discovery
    assert settings.origins == ("http://a",)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        (
            {"POOLHOUSE_PORT": "eighty"},
            "POOLHOUSE_PORT must be a whole number from 0 to 65535, not 'eighty'.",
        ),
        (
            {"POOLHOUSE_PORT": "65536"},
            "POOLHOUSE_PORT must be a whole number from 0 to 65535, not '65536'.",
        ),
        (
            {"POOLHOUSE_ALLOW_DISCOVERY": "maybe"},
            "POOLHOUSE_ALLOW_DISCOVERY must be 1 or 0, not 'maybe'.",
        ),
        (
            {"POOLHOUSE_ALIVE_TIMEOUT_S": "nan"},
            "POOLHOUSE_ALIVE_TIMEOUT_S must be a number of seconds from 0.05 to 86400, not 'nan'.",
        ),
        (
            {"POOLHOUSE_ORIGINS": "room.example"},
            (
                "POOLHOUSE_ORIGINS must be a comma list of origins such as "
                "https://room.example.org, "
                "not 'room.example'."
            ),
        ),
        (
            {"POOLHOUSE_PATH": "/a b"},
            (
                "POOLHOUSE_PATH must be a path of letters, digits, '.', '_', '~', '-' and '/', "
                "not '/a b'."
            ),
        ),
        (
            {"POOLHOUSE_KEY": "a/b"},
            "POOLHOUSE_KEY must be 1 to 64 letters, digits, '-' or '_', not 'a/b'.",
        ),
        (
            {"POOLHOUSE_LOG_LEVEL": "loud"},
            "POOLHOUSE_LOG_LEVEL must be one of debug, info, warning, error, not 'loud'.",
        ),
        (
            {"POOLHOUSE_MAX_MESSAGE_BYTES": "1000"},
            (
                "POOLHOUSE_MAX_MESSAGE_BYTES must be a whole number from 65536 to 16777216, "
                "not '1000'."
            ),
        ),
    ],
)
def test_errors_are_sentences(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as error:
        Settings.load(environ)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"prot": 1}, "There is no setting named 'prot'."),
        ({"port": -1}, "port must be a whole number from 0 to 65535, not '-1'."),
        (
            {"turn_secret": "north"},
            (
                "turn_secret is a secret: give it as POOLHOUSE_TURN_SECRET or "
                "POOLHOUSE_TURN_SECRET_FILE, not as an argument."
            ),
        ),
    ],
)
def test_bad_arguments(arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsError) as error:
        Settings.load({}, **arguments)
    assert str(error.value) == sentence


def test_the_secret_comes_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("north\n")
    settings = Settings.load({"POOLHOUSE_TURN_SECRET_FILE": str(file)})
    assert settings.turn_secrets == ("north",)


def test_a_secret_file_that_cannot_be_used(tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for name, reason in (
        ("absent", "No such file or directory"),
        ("binary", "it is not UTF-8 text"),
        ("empty", "is empty"),
    ):
        with pytest.raises(SettingsError, match=reason):
            Settings.load({}, turn_secret_file=str(tmp_path / name))


def test_two_secrets_leave_doubt(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("north")
    with pytest.raises(SettingsError, match="not both"):
        Settings.load({"TURN_SECRET": "south"}, turn_secret_file=str(file))


def test_secrets_are_never_shown() -> None:
    settings = Settings.load({"TURN_SECRET": "sesame"})
    assert settings.turn_secret == "sesame"
    assert "sesame" not in repr(settings)
    secrets = {"TURN_KEY_API_TOKEN", "POOLHOUSE_API_TOKENS", "POOLHOUSE_TURN_ICE_SERVERS"}
    settings = Settings.load(dict.fromkeys(secrets, "sesame"))
    assert settings.api_tokens == ("sesame",)
    assert "sesame" not in repr(settings)


def test_a_file_of_secrets_has_the_newest_first(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("# rotated in November\nnew\n\nold\n")
    assert Settings.load({}, turn_secret_file=str(file)).turn_secrets == ("new", "old")
    tokens = Settings.load({}, api_tokens_file=str(file)).api_tokens
    assert tokens == ("new", "old")


@pytest.mark.parametrize(
    ("text", "rate"), [("", 10), ("0", 10), ("-1", 10), ("3.5", 10), ("x", 10), ("3", 3)]
)
def test_the_rate(text: str, rate: int) -> None:
    """Relay credentials, 2: what is not a positive whole number counts as unset."""
    assert Settings.load({"TURN_RATE": text}).turn_rate == rate


def test_proxies_are_addresses_or_ranges() -> None:
    settings = Settings.load({}, trusted_proxies="10.0.0.0/8, ::1")
    assert settings.trusted_proxies == ("10.0.0.0/8", "::1/128")
    with pytest.raises(SettingsError, match="addresses or ranges"):
        Settings.load({}, trusted_proxies="proxy.example")


def test_our_own_variable_wins_over_the_common_one() -> None:
    settings = Settings.load({"TURN_HOST": "a", "POOLHOUSE_TURN_HOST": "b"})
    assert settings.turn_host == "b"


def test_every_setting_is_documented_and_its_default_is_valid() -> None:
    keys = describe()
    assert [key.name for key in keys] == [field.name for field in dataclasses.fields(Settings)]
    for key in keys:
        assert key.doc.endswith(".")
        assert key.variable == "POOLHOUSE_" + key.name.upper()
    defaults = dataclasses.asdict(Settings())
    secrets = [each.name for each in dataclasses.fields(Settings) if each.metadata["secret"]]
    assert {"turn_secret", "turn_key_api_token", "api_tokens"} <= set(secrets)
    for secret in secrets:
        assert not defaults.pop(secret)
    assert Settings.load({}, **defaults) == Settings()


def test_several_replicas_need_a_store() -> None:
    """Each would keep rooms of its own: half of the joiners would reach the wrong host."""
    with pytest.raises(SettingsError, match="POOLHOUSE_REDIS_URL, or run one"):
        Settings.load({"POOLHOUSE_REPLICAS": "2"})
    shared = Settings.load({"POOLHOUSE_REPLICAS": "2", "POOLHOUSE_REDIS_URL": "redis://r"})
    assert shared.replicas == 2


def test_a_password_of_redis_is_no_argument_and_never_shown(tmp_path: Path) -> None:
    assert Settings.load({}, redis_url="redis://r:6379/1").redis_url == "redis://r:6379/1"
    with pytest.raises(SettingsError, match="is a secret") as error:
        Settings.load({}, redis_url="redis://user:sesame@r")
    assert "sesame" not in str(error.value)
    (tmp_path / "url").write_text("rediss://user:sesame@r\n")
    settings = Settings.load({}, redis_url_file=str(tmp_path / "url"))
    assert settings.redis_url == "rediss://user:sesame@r"
    assert "sesame" not in repr(settings)


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"POOLHOUSE_REDIS_URL": "sesame"}, "POOLHOUSE_REDIS_URL must be an address such as"),
        ({"POOLHOUSE_REDIS_PREFIX": "a{b}"}, "POOLHOUSE_REDIS_PREFIX must be 1 to 32 letters"),
        ({"POOLHOUSE_TLS_CERT": "cert.pem"}, "A certificate needs its key"),
        ({"POOLHOUSE_TLS_KEY": "key.pem"}, "A certificate needs its key"),
    ],
)
def test_what_does_not_fit_together(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence) as error:
        Settings.load(environ)
    assert "sesame" not in str(error.value)
