"""Debian's Prometheus on a free loopback port, and its promtool."""

from __future__ import annotations

import re
import shutil
import subprocess
import threading
import time
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Self

import httpx
import yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = ["Prometheus", "promtool"]

_DEADLINE_S = 30.0


def promtool(*arguments: str | Path, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run it to its end."""
    program = shutil.which("promtool")
    assert program, "promtool is missing: apt-get install prometheus"
    return subprocess.run(
        [program, *map(str, arguments)], input=text, capture_output=True, text=True, check=False
    )


class Prometheus(AbstractContextManager):
    """Scrapes ``targets``, by job, every two seconds, with rules of ours."""

    def __init__(
        self, folder: Path, targets: Mapping[str, Iterable[str]], rules: Iterable[Path]
    ) -> None:
        self._folder = folder
        config = {
            "global": {
                "scrape_interval": "1s",
                "scrape_timeout": "1s",
                "evaluation_interval": "1s",
            },
            "rule_files": [str(path) for path in rules],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(addresses)}]}
                for job, addresses in targets.items()
            ],
        }
        self._config = folder / "prometheus.yml"
        self._config.write_text(yaml.safe_dump(config), encoding="utf-8")
        self._lines: list[str] = []

    def __enter__(self) -> Self:
        program = shutil.which("prometheus")
        assert program, "prometheus is missing: apt-get install prometheus"
        self._process = subprocess.Popen(
            [
                program,
                f"--config.file={self._config}",
                f"--storage.tsdb.path={self._folder / 'data'}",
                "--web.listen-address=127.0.0.1:0",
            ],
            stderr=subprocess.PIPE,
            text=True,
        )
        threading.Thread(target=self._read, daemon=True).start()
        self.url = f"http://{self._until_listening()}"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression now. Raises with the server's words when it is none."""
        return self.ask("query", query=expression)["result"]

    def ask(self, what: str, **parameters: str) -> Any:
        """What ``/api/v1/`` has as its data."""
        with httpx.Client(trust_env=False) as client:
            answer = client.get(f"{self.url}/api/v1/{what}", params=parameters).json()
        assert answer["status"] == "success", answer
        return answer["data"]

    def until(self, expression: str, *, timeout_s: float = _DEADLINE_S) -> None:
        """Wait until an expression has a series."""
        deadline = time.monotonic() + timeout_s
        while not self.query(expression):
            assert time.monotonic() < deadline, f"{expression} never was"
            time.sleep(0.2)

    def _read(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            self._lines.extend(lines)

    def _until_listening(self) -> str:
        deadline = time.monotonic() + _DEADLINE_S
        while time.monotonic() < deadline and self._process.poll() is None:
            for line in list(self._lines):
                if found := re.search(r'"Listening on" address=(\S+)', line):
                    return found[1]
            time.sleep(0.05)
        raise AssertionError("".join(self._lines))
