"""The documentation builds as a site, strictly, and the site needs no other host."""

import os
import re
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(path.relative_to(ROOT / "docs") for path in ROOT.glob("docs/**/*.md"))
HEAD_TAGS = re.compile(r"<(?:script|link|img|iframe|source)\b[^>]*>")


def build(config: Path, site: Path) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "-f", config, "-d", site],
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    done = build(ROOT / "mkdocs.yml", folder)
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def hooks() -> ModuleType:
    spec = spec_from_file_location("site_hooks", ROOT / "tools" / "site" / "hooks.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
def test_every_page_is_in_it_and_the_files_of_the_root_are(site):
    made = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    wanted = {str(page.with_suffix(".html")) for page in PAGES}
    wanted = {name.replace("README.html", "index.html") for name in wanted}
    assert wanted <= made
    assert {f"project/{name}.html" for name in ("about", "changes", "security")} <= made


@pytest.mark.slow
def test_no_page_takes_anything_from_another_host(site):
    for page in site.rglob("*.html"):
        tags = HEAD_TAGS.findall(page.read_text(encoding="utf-8"))
        assert tags
        assert [tag for tag in tags if re.search(r"(?:src|href)=\"?(?:https?:)?//", tag)] == []


@pytest.mark.slow
def test_a_page_with_a_diagram_has_what_draws_it(site):
    page = site / "explanation" / "architecture.html"
    (script,) = re.findall(r'<script src="([^"]*mermaid[^"]*)"', page.read_text(encoding="utf-8"))
    assert (page.parent / script).is_file()
    assert "mermaid.tiny" not in (site / "index.html").read_text(encoding="utf-8")


@pytest.mark.slow
def test_what_a_fence_says_to_the_tests_is_not_shown(site):
    page = (site / "tutorial" / "first-room.html").read_text(encoding="utf-8")
    assert "```" not in page
    assert "terminal=" not in page


@pytest.mark.slow
@pytest.mark.parametrize("link", ["[away](gone.md)", "[away](index.md#gone)"])
def test_a_link_to_nowhere_fails_the_build(link, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "index.md").write_text(f"# Start\n\n{link}\n")
    (tmp_path / "mkdocs.yml").write_text(
        f"INHERIT: {ROOT}/mkdocs.yml\ndocs_dir: {tmp_path}/docs\nhooks: []\nplugins: []\n"
    )
    done = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert done.returncode != 0
    assert "gone" in done.stderr


@pytest.mark.parametrize(
    ("page", "written", "led"),
    [
        ("index.md", "[r](../README.md)", "[r](project/about.md)"),
        ("explanation/links.md", "[s](../../SECURITY.md#x)", "[s](../project/security.md#x)"),
        ("project/about.md", "[d](docs/how-to/relay.md#c)", "[d](../how-to/relay.md#c)"),
        ("project/about.md", "[l](LICENSE)", "[l](licence.md)"),
        ("how-to/relay.md", "[t](two-machines.md)", "[t](two-machines.md)"),
        ("how-to/relay.md", "[p](https://pooled.run)", "[p](https://pooled.run)"),
        ("how-to/relay.md", "[here](#coturn)", "[here](#coturn)"),
        ("how-to/relay.md", "[x](../../tests/x.py)", "[x](../../tests/x.py)"),
        ("how-to/relay.md", '```sh run until="x"\nls\n```', "```sh\nls\n```"),
    ],
)
def test_links_and_fences_as_the_site_wants_them(hooks, page, written, led):
    there = SimpleNamespace(file=SimpleNamespace(src_uri=page))
    assert hooks.on_page_markdown(written, page=there, config=None, files=None) == led


def test_a_missing_script_is_told_with_the_command_that_brings_it(hooks, monkeypatch, tmp_path):
    monkeypatch.setattr(hooks, "MODULES", tmp_path)
    with pytest.raises(hooks.PluginError, match="make docs"):
        hooks.on_files([], SimpleNamespace(use_directory_urls=False, site_dir="x"))
