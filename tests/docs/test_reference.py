"""The reference pages are what the code says, and the check would notice if they were not."""

import re
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def make_docs() -> ModuleType:
    loader = SourceFileLoader("make_docs", str(ROOT / "tools" / "make-docs"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


def test_every_page_is_what_the_code_says(make_docs):
    stale = [path for path, text in make_docs.pages().items() if (ROOT / path).read_text() != text]
    assert not stale, f"run .venv/bin/python tools/make-docs: {stale}"


def test_the_check_says_which_page_is_stale_and_writes_nothing(make_docs, tmp_path, capsys):
    make_docs.main([], tmp_path)
    assert make_docs.main(["--check"], tmp_path) == 0
    page = tmp_path / "docs" / "reference" / "settings.md"
    page.write_text("old\n")
    assert make_docs.main(["--check"], tmp_path) == 1
    assert "docs/reference/settings.md" in capsys.readouterr().err
    assert page.read_text() == "old\n"


def test_a_missing_page_is_stale(make_docs, tmp_path):
    assert make_docs.main(["--check"], tmp_path) == 1


def test_other_arguments_are_a_wrong_use(make_docs, tmp_path):
    assert make_docs.main(["--force"], tmp_path) == 2
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("command", ["up", "host", "join", "ask", "control", "models pull"])
def test_every_command_has_its_section(make_docs, command):
    assert f"## poolhouse {command}\n" in make_docs.command_line()


def test_secrets_of_the_environment_do_not_reach_the_pages(make_docs, monkeypatch):
    monkeypatch.setenv("POOLHOUSE_TURN_SECRET", "not-for-a-page")
    monkeypatch.setenv("POOLHOUSE_NAME", "not-for-a-page")
    monkeypatch.setenv("POOLHOUSE_SIGNAL", "not-for-a-page")
    assert "not-for-a-page" not in "".join(make_docs.pages().values())


def test_the_api_page_has_every_operation_and_every_type(make_docs):
    page = make_docs.api()
    assert "## POST /api/turn\n" in page
    assert "| 429 | Too many; see Retry-After. | [Refusal](#refusal) as" in page
    assert "list of [IceServer](#iceserver)" in page
    for name in set(re.findall(r"\(#(\w+)\)", page)):
        assert f"## {name}\n" in page.lower()


def test_hidden_options_are_not_shown(make_docs):
    assert "quiet-if-present" not in make_docs.command_line()
