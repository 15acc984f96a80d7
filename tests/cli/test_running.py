"""How a command ends, and how its clean-up learns why."""

import asyncio
import os
import signal

import pytest

from poolhouse_node.cli.failures import CommandFailed
from poolhouse_node.cli.running import PARENT_FD, _run, ended_by


@pytest.fixture(autouse=True)
def handlers():
    """A command keeps its handlers to the end of its process; this process goes on."""
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.getsignal(number) for number in numbers}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["int", "term"]
)
def test_the_clean_up_of_a_command_knows_the_signal(number, status):
    seen = []

    async def below() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ended_by())

    async def main() -> int:
        seen.append(ended_by())
        inner = asyncio.ensure_future(below())
        await asyncio.sleep(0)
        os.kill(os.getpid(), number)
        try:
            await inner
        finally:
            seen.append(ended_by())
        return 0

    assert _run(main()) == status
    assert seen == [None, number, number]


def test_a_parent_that_is_gone_counts_as_sigterm(monkeypatch):
    reading, writing = os.pipe()
    monkeypatch.setenv(PARENT_FD, str(reading))
    seen = []

    async def main() -> int:
        os.close(writing)
        try:
            await asyncio.Event().wait()
        finally:
            seen.append(ended_by())
        return 0

    assert _run(main()) == 143
    assert seen == [signal.SIGTERM]
    os.close(reading)


def test_a_failure_of_ours_is_one_sentence(capsys):
    async def main() -> int:
        raise CommandFailed("It does not work.")

    assert _run(main()) == 1
    assert capsys.readouterr().err == "poolhouse: It does not work.\n"


def test_outside_of_commands_no_signal_came():
    assert ended_by() is None
