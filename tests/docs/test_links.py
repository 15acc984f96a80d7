"""What the Markdown points at exists: links, headings, files, commands, make targets."""

import re
import shlex
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer
from typer.testing import CliRunner

from poolhouse_node.cli.main import app

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])
BASES = (
    ROOT, ROOT / "node" / "poolhouse_node", ROOT / "control" / "poolhouse_control",
)  # fmt: skip
"""Where a path in backticks may start: `wire/slices.py` is one of `node/poolhouse_node`."""
FENCE = re.compile(r"^```(?P<kind>[^\n]*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"\.?[\w-][\w./-]*(?:/|\.(?:py|md|lua|toml|json|txt))")
OTHERS_FILES = {
    "config.json", "tokenizer.json", "poolhouse.toml", "turnserver.conf", "gate.json", "room.json",
}  # fmt: skip
"""Names of files that the reader has or writes, not we."""


class Found(NamedTuple):
    """Something a page says, and which page."""

    page: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text}"


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def links() -> list[Found]:
    found = (Found(name_of(page), target) for page in PAGES for target in LINK.findall(prose(page)))
    return [each for each in found if not re.match(r"[a-z]+:", each.text)]


def paths() -> list[Found]:
    return [
        Found(name_of(page), text)
        for page in PAGES
        for text in CODE.findall(prose(page))
        if PATH.fullmatch(text) and text not in OTHERS_FILES and not text.startswith("/")
    ]


def commands(program: str) -> list[Found]:
    """Shown invocations of a program: lines of shell blocks, and backticks."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in FENCE.finditer(text):
            if block["kind"].partition(" ")[0] in {"sh", "bash", "console"}:
                lines = block["text"].replace("\\\n", " ").splitlines()
                found += [Found(name_of(page), line) for line in map(shell_line, lines)]
        found += [Found(name_of(page), code) for code in CODE.findall(prose(page))]
    return [each for each in found if each.text.split(" ")[0] == program]


def shell_line(line: str) -> str:
    """The command of a line: without prompt, leading variables, comment and what follows it."""
    line = re.sub(r"\s#.*", "", line.strip().removeprefix("$ "))
    line = re.sub(r"^(?:[A-Z_]+=\S*\s+)+", "", line)
    return re.split(r"\s(?:\||&&|>|<|&)(?:\s|$)", line)[0].removeprefix(".venv/bin/").strip()


def slugs(page: Path) -> set[str]:
    """Anchors of the headings of a page, as hosting sites make them."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).strip().replace(" ", "-") for head in heads}


@pytest.mark.parametrize("link", links(), ids=str)
def test_the_target_of_a_link_exists(link):
    path, _, anchor = link.text.partition("#")
    target = (ROOT / link.page).parent / path if path else ROOT / link.page
    assert target.exists()
    if anchor:
        assert anchor in slugs(target)


@pytest.mark.parametrize("path", paths(), ids=str)
def test_a_path_in_backticks_exists(path):
    bases = (*BASES, (ROOT / path.page).parent)
    assert any((base / path.text).exists() for base in bases)


def leaf_of(words: list[str]) -> tuple[Any, list[str], list[str]]:
    """The command that words name, its names, and the words that are left for it."""
    command: Any = typer.main.get_command(app)
    names: list[str] = []
    while hasattr(command, "commands"):
        while words and words[0].startswith("-"):  # options of the group itself
            option, words = words[0], words[1:]
            known = {name: each for each in command.params for name in each.opts}
            assert option in known or option in {"-h", "--help"}, f"no option {option}"
            words = words if option in {"-h", "--help"} or known[option].is_flag else words[1:]
        if not words:
            return command, names, []
        assert words[0] in command.commands, f"no command {words[0]}"
        command, names, words = command.commands[words[0]], [*names, words[0]], words[1:]
    return command, names, words


@pytest.mark.parametrize("shown", commands("poolhouse"), ids=str)
def test_a_command_that_is_shown_can_be_typed(shown):
    command, names, words = leaf_of(shlex.split(shown.text)[1:])
    if "..." in words or shown.text.endswith("…"):
        words = [word for word in words if word.startswith("--")]
        assert set(words) <= {name for each in command.params for name in each.opts}
    elif words:
        command.make_context(names[-1], words)  # raises what a wrong use would say
    assert CliRunner().invoke(app, [*names, "--help"]).exit_code == 0


@pytest.mark.parametrize("shown", commands("make"), ids=str)
def test_a_make_target_that_is_shown_exists(shown):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    wanted = [word for word in shown.text.split()[1:] if "=" not in word]
    assert set(wanted) <= set(targets)


def test_something_is_looked_at():
    """An expression that finds nothing would pass every test above."""
    assert len(links()) > 20
    assert len(paths()) > 40
    assert len(commands("poolhouse")) > 20
    assert len(commands("make")) > 5


def test_every_page_can_be_reached_from_the_readme():
    seen, waiting = set(), [ROOT / "README.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        targets = (target.partition("#")[0] for target in LINK.findall(prose(page)))
        waiting += [page.parent / target for target in targets if target and ":" not in target]
    assert {page.resolve() for page in PAGES} <= seen


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("$ poolhouse models list  # what is there", "poolhouse models list"),
        ("POOLHOUSE_PORT=80 poolhouse control > log", "poolhouse control"),
        (".venv/bin/poolhouse doctor | head", "poolhouse doctor"),
    ],
)
def test_the_command_of_a_shell_line(line, command):
    assert shell_line(line) == command


@pytest.mark.parametrize("words", [["hots"], ["--nonsense", "up"], ["models", "push"]])
def test_a_wrong_command_would_be_noticed(words):
    with pytest.raises(AssertionError):
        leaf_of(words)


def test_a_wrong_option_would_be_noticed():
    command, names, words = leaf_of(["join", "ABCDEF", "--sginal", "x"])
    with pytest.raises(Exception, match="sginal"):
        command.make_context(names[-1], words)
