"""Settings from a file, named as on the command line."""

import pytest
import typer

from poolhouse_node.cli.main import app
from poolhouse_node.cli.settings_file import SettingsFileError, read_settings_file

PROGRAM = typer.main.get_command(app)


def settings(tmp_path, text: str) -> dict:
    file = tmp_path / "poolhouse.toml"
    file.write_text(text, encoding="utf-8")
    return read_settings_file(file, PROGRAM)


def test_keys_are_the_names_of_options(tmp_path):
    text = "[host]\nmax-tokens = 9\nopen = true\n[models.list]\njson = true\n"
    assert settings(tmp_path, text) == {
        "host": {"max_tokens": 9, "open_room": True},
        "models": {"list": {"as_json": True}},
    }


def test_underscores_do_as_well(tmp_path):
    assert settings(tmp_path, "[up]\nmax_tokens = 9") == {"up": {"max_tokens": 9}}


@pytest.mark.parametrize(
    ("text", "named"),
    [("[hots]\n", "hots"), ("[host]\nmodle = 'x'\n", "modle"), ("[join]\nroom = 'x'", "room")],
)
def test_a_name_that_nothing_has_is_refused(tmp_path, text, named):
    with pytest.raises(SettingsFileError, match=named):
        settings(tmp_path, text)


@pytest.mark.parametrize("content", [b"[host", b"\xff\xfe", b"x = "])
def test_a_file_that_is_no_toml(tmp_path, content):
    file = tmp_path / "poolhouse.toml"
    file.write_bytes(content)
    with pytest.raises(SettingsFileError, match="cannot be used"):
        read_settings_file(file, PROGRAM)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(SettingsFileError):
        read_settings_file(tmp_path / "none.toml", PROGRAM)
