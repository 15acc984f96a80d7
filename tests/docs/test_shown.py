"""What fences say to the tests is understood, and no command of a guide is left out in silence."""

from pathlib import Path

import pytest

from tests.support import shown
from tests.support.shown import ROOT, blocks, pattern_of, with_what_was_shown

GUIDES = ["README.md", *(str(page.relative_to(ROOT)) for folder in ("tutorial", "how-to")
          for page in sorted((ROOT / "docs" / folder).glob("*.md")))]  # fmt: skip
WALKS = (ROOT / "tests" / "docs" / "test_walks.py").read_text(encoding="utf-8")
SHELL = {"sh", "bash", "console", "shell"}


@pytest.fixture
def page(tmp_path, monkeypatch):
    """A function that makes a page of a text; its name."""

    def make(text: str) -> str:
        (tmp_path / "page.md").write_text(text, encoding="utf-8")
        return "page.md"

    monkeypatch.setattr(shown, "ROOT", tmp_path)
    return make


@pytest.mark.parametrize("guide", GUIDES)
def test_every_command_of_a_guide_is_run_or_has_a_reason(guide):
    silent = [str(block) for block in blocks(guide) if block.language in SHELL and not block.verb]
    assert not silent, f'say `run` or `not-run="reason"` behind {silent}: see CONTRIBUTING'


@pytest.mark.parametrize("guide", GUIDES)
def test_a_guide_with_commands_to_run_is_walked_through(guide):
    if any(block.verb == "run" for block in blocks(guide)):
        assert f'"{guide}"' in WALKS


def test_a_page_in_order(page):
    text = (
        'x\n```sh run on="desk attic" terminal="2" until="is open"\nls\n```\n'
        '```text shows\na\n```\n```sh not-run="it is yours"\nrm\n```\n```json\n{}\n```\n'
    )
    run, shows, left, plain = blocks(page(text))
    assert (run.verb, run.options["until"]) == ("run", "is open")
    assert run.places == [("desk", "2"), ("attic", "2")]
    assert (run.text, run.line, str(run)) == ("ls\n", 2, "page.md:2")
    assert (shows.verb, shows.language, shows.places) == ("shows", "text", [("", "1")])
    assert (left.verb, left.reason) == ("not-run", "it is yours")
    assert (plain.verb, plain.language) == ("", "json")


@pytest.mark.parametrize(
    "words", ["rum", 'run untli="x"', "not-run", 'run="why"', "run ???", 'shows status="1"']
)
def test_words_that_mean_nothing_are_refused(page, words):
    with pytest.raises(ValueError, match=r"page\.md:1"):
        blocks(page(f"```sh {words}\nls\n```\n"))


@pytest.mark.parametrize(
    ("line", "screen"),
    [
        ("host  layers 0–9  ██··  0.11 GB", "> host layers 0–9   ██··    12.5 GB"),
        ("attic, … through a relay", "  attic, layers 15–29, 52.0 ms, through a relay (x"),
        ("a.b (c)", "a.b (c)"),
    ],
)
def test_a_shown_line_is_found(line, screen):
    assert pattern_of(line).search(screen)


@pytest.mark.parametrize(
    ("line", "screen"),
    [("0.11 GB", "a GB"), ("a … b", "a\nb"), ("a.b", "axb"), ("layers 0–9", "layers 0–19")],
)
def test_another_line_is_not_found(line, screen):
    assert not pattern_of(line).search(screen)


def test_a_word_is_typed_as_it_was_shown_last():
    screens = "join 'http://desk/r/AB#k=old' join 'http://desk/r/AB#k=new' or not"
    command = "poolhouse join 'http://desk/r/AB#k=…' --name x"
    assert with_what_was_shown(command, screens) == (
        "poolhouse join 'http://desk/r/AB#k=new' --name x"
    )


def test_a_word_that_was_never_shown_is_an_error():
    with pytest.raises(ValueError, match="shown before"):
        with_what_was_shown("poolhouse join http://desk/#k=…", "nothing")


def test_commands_are_looked_for_where_there_are_some():
    assert len(GUIDES) > 8
    assert sum(block.verb == "run" for guide in GUIDES for block in blocks(guide)) > 20
    assert Path(ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").count("`sh run") >= 2
