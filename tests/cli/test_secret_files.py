"""Secrets in files stand for variables."""

import pytest
import typer

from poolhouse_node.cli.secret_files import FROM_FILES, SIZE_BYTES_MAX, read_secret_files


@pytest.mark.parametrize("name", FROM_FILES)
def test_a_file_stands_for_its_variable(name, tmp_path):
    file = tmp_path / "secret"
    file.write_text("the secret\n")
    environment = {f"{name}_FILE": str(file)}
    read_secret_files(environment)
    assert environment[name] == "the secret"


def test_a_variable_counts_before_its_file():
    environment = {"POOLHOUSE_ROOM": "4TK-G9P", "POOLHOUSE_ROOM_FILE": "/nowhere"}
    read_secret_files(environment)
    assert environment["POOLHOUSE_ROOM"] == "4TK-G9P"


def test_nothing_is_set_without_files():
    environment = {"POOLHOUSE_ROOM_FILE": "", "OTHER_FILE": "/nowhere"}
    read_secret_files(environment)
    assert environment == {"POOLHOUSE_ROOM_FILE": "", "OTHER_FILE": "/nowhere"}


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        (b"\xff\xfe", "cannot be read"),
        (b" \n", "is empty"),
        (b"x" * (SIZE_BYTES_MAX + 1), "too long"),
    ],
)
def test_a_file_that_is_no_good_is_a_sentence_with_its_variable(tmp_path, content, words):
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(typer.BadParameter, match=words) as failure:
        read_secret_files({"POOLHOUSE_INVITE_FILE": str(file)})
    assert "POOLHOUSE_INVITE_FILE" in str(failure.value)
