"""Where the newest secret comes from while it changes."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from poolhouse_control.errors import RelayUnavailable
from poolhouse_control.relay.secrets import FileSecret, FixedSecret, PolledSecret

if TYPE_CHECKING:
    from pathlib import Path


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def test_fixed() -> None:
    assert await FixedSecret("north").newest() == "north"


async def test_a_file_is_read_again_when_it_changes(tmp_path: Path) -> None:
    file, clock = tmp_path / "secret", Clock()
    file.write_text("old\n")
    source = FileSecret(str(file), "old", clock=clock)
    replacement = tmp_path / "new"
    replacement.write_text("new\nold\n")
    os.replace(replacement, file)
    assert await source.newest() == "old", "looked at once a second at most"
    clock.now += 1.0
    assert await source.newest() == "new"


@pytest.mark.parametrize("content", [None, b"", b"\xff\xfe", b"# only a remark\n"])
async def test_a_file_that_cannot_be_used_leaves_the_last_secret(
    tmp_path: Path, content: bytes | None
) -> None:
    file, clock = tmp_path / "secret", Clock()
    file.write_text("old\n")
    source = FileSecret(str(file), "old", clock=clock)
    if content is None:
        file.unlink()
    else:
        file.write_bytes(content)
    clock.now += 1.0
    assert await source.newest() == "old"
    file.write_text("newer\nold\n")
    clock.now += 1.0
    assert await source.newest() == "newer"


async def test_a_store_is_asked_now_and_then_and_may_fail() -> None:
    clock, answers = Clock(), ["first", RuntimeError("away"), None, "second"]
    asked = 0

    async def fetch() -> str | None:
        nonlocal asked
        asked += 1
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    source = PolledSecret(fetch, every_s=5, clock=clock)
    seen = []
    for _ in range(5):
        seen.append(await source.newest())
        seen.append(await source.newest())
        clock.now += 5
        if not answers:
            break
    assert seen == ["first"] * 6 + ["second"] * 2
    assert asked == 4


async def test_a_store_without_a_secret_is_a_relay_without_credentials() -> None:
    async def nothing() -> None:
        return None

    with pytest.raises(RelayUnavailable):
        await PolledSecret(nothing).newest()
