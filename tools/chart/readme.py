"""The chart's README: a table of every value with the comment above it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

import yaml

__all__ = ["readme_text"]

HEAD = """\
# The poolhouse chart

<!-- Made by tools/make-chart-files from values.yaml: change that, then run it again. -->

Rooms in which machines of yours hold one large language model together: the control plane, pools
of nodes with or without GPUs, a room hosted in the cluster, and a relay. How to use it is in
[Kubernetes](../../docs/how-to/kubernetes.md) and [A GPU pool](../../docs/how-to/gpu-pool.md).

```sh
helm install demo helm/poolhouse --namespace rooms --create-namespace
```

By default it installs one control plane and nothing else. No value holds a secret: they come from
Secrets of yours that values name. What is said for a pool in `nodes.pools.NAME` counts before
`nodes.defaults`. Values that do not fit together are refused with a sentence.

"""
KEY = re.compile(r"^(?P<indent> *)(?P<name>[A-Za-z]\w*):(?: |$)")
COMMENT = re.compile(r"^ *# ?(?P<text>.*)$")


@dataclass(frozen=True, slots=True)
class Value:
    """One row: where it is, its default, what it is for."""

    path: str
    default: Any
    doc: str


def readme_text(values_yaml: str) -> str:
    """The whole file."""
    rows = [
        f"| `{value.path}` | {_shown(value.default)} | {value.doc} |"
        for value in _values(values_yaml)
    ]
    return HEAD + "\n".join(["| Value | Default | Meaning |", "| --- | --- | --- |", *rows]) + "\n"


def _values(text: str) -> list[Value]:
    """Every key that has a description, and every leaf."""
    tree = yaml.safe_load(text)
    docs = _docs(text)
    return [
        Value(".".join(path), default, docs.get(path, ""))
        for path, default in _leaves(tree, (), docs)
    ]


def _leaves(
    tree: dict[str, Any], above: tuple[str, ...], docs: dict[tuple[str, ...], str]
) -> list[tuple[tuple[str, ...], Any]]:
    """A map with a description of its own is one row: it is handed on to Kubernetes as it is."""
    found = []
    for name, value in tree.items():
        path = (*above, name)
        is_group = isinstance(value, dict) and value and not _is_passed_on(path, docs)
        found += _leaves(value, path, docs) if is_group else [(path, value)]
    return found


def _is_passed_on(path: tuple[str, ...], docs: dict[tuple[str, ...], str]) -> bool:
    whole = ("Probe", "resources", "SecurityContext", "updateStrategy")
    return path[-1].endswith(whole) or (
        path[-1] in {"labels", "annotations"} and path[0] != "nodes"
    )


def _docs(text: str) -> dict[tuple[str, ...], str]:
    """Descriptions by path: comments that begin with `--`, with the lines that follow them."""
    found: dict[tuple[str, ...], str] = {}
    above: list[tuple[int, str]] = []
    said: list[str] = []
    for line in text.splitlines():
        if comment := COMMENT.match(line):
            begins = comment["text"].startswith("-- ")
            said = [comment["text"][3:]] if begins else [*said, comment["text"]] if said else []
        elif key := KEY.match(line):
            depth = len(key["indent"])
            above = [each for each in above if each[0] < depth] + [(depth, key["name"])]
            if said:
                found[tuple(name for _, name in above)] = " ".join(said)
            said = []
        else:
            said = []
    return found


def _shown(default: Any) -> str:
    if default in ("", None, [], {}):
        return ""
    return f"`{json.dumps(default) if not isinstance(default, str) else default}`".replace(
        "|", "\\|"
    )
