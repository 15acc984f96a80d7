"""What MkDocs does beside its own for the documentation: files of the root, diagrams, fences.

* README, CONTRIBUTING, SECURITY and the like stand in the root, where people look for them. They
  are pages of the site too, under ``project/``, and links lead there from everywhere. So is what
  the chart says of its values.
* Scripts that the theme takes from another host lie on the site itself
  (``tools/site/package.json``).
* What a fence says to the tests (``sh run ...``, see CONTRIBUTING) is not shown to readers.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File
from mkdocs.utils import get_relative_url

if TYPE_CHECKING:
    from mkdocs.structure.files import Files

ROOT = Path(__file__).resolve().parents[2]
PROJECT = {
    "README.md": "project/about.md",
    "CHANGELOG.md": "project/changes.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "SECURITY.md": "project/security.md",
    "LICENSE": "project/licence.md",
    "helm/poolhouse/README.md": "reference/chart.md",
}
"""Where files of the root, and the chart's values, stand in the site."""
MODULES = ROOT / "tools/site/node_modules"
DIAGRAMS = "@mermaid-js/tiny/dist/mermaid.tiny.js"
SEARCH = "iframe-worker/shim/index.js"
SEARCH_ELSEWHERE = "https://unpkg.com/iframe-worker/shim"
LINK = re.compile(r"(?<=\]\()(?P<path>[^):#\s]+)(?P<anchor>#[^)\s]*)?(?=\))")
FENCE = re.compile(r"^```(?P<kind>[a-z]+) [^\n]*$", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the scripts and the files of the root."""
    for script in (DIAGRAMS, SEARCH):
        source = MODULES / script
        if not source.is_file():
            raise PluginError(f"{source} is missing: `make docs` installs it.")
        files.append(File.generated(config, f"assets/{script}", abs_src_path=str(source)))
    for name, uri in PROJECT.items():
        text = (ROOT / name).read_text(encoding="utf-8")
        if uri == PROJECT["LICENSE"]:
            text = f"# Licence\n\n```text\n{text.strip()}\n```\n"
        files.append(File.generated(config, uri, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Lead links to where things are in the site, and take the tests' words out of fences."""
    here = page.file.src_uri
    led = LINK.sub(lambda found: _led(found["path"], here) + (found["anchor"] or ""), markdown)
    return FENCE.sub(r"```\g<kind>", led)


def on_post_template(output: str, template_name: str, **_: Any) -> str:
    """The page for addresses that do not exist. It may be shown at any depth."""
    return _from_here(output, template_name)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Give a page with a diagram the script, before the theme would fetch one elsewhere."""
    if 'class="mermaid"' in output:
        script = f'<script src="{get_relative_url(f"assets/{DIAGRAMS}", page.url)}"></script>'
        output = output.replace("</head>", f"{script}</head>", 1)
    return _from_here(output, page.url)


def _from_here(output: str, url: str) -> str:
    return output.replace(SEARCH_ELSEWHERE, get_relative_url(f"assets/{SEARCH}", url))


def _led(path: str, here: str) -> str:
    """A link of a page as the site has it. What leads to no page stays: strict mode says so."""
    in_repository = {uri: name for name, uri in PROJECT.items()}.get(here, f"docs/{here}")
    target = posixpath.normpath(posixpath.join(posixpath.dirname(in_repository), path))
    uri = PROJECT.get(target, target.removeprefix("docs/") if target.startswith("docs/") else None)
    return path if uri is None else posixpath.relpath(uri, posixpath.dirname(here) or ".")
