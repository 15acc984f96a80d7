"""Rules for every test: what CI must run may not be skipped."""

import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# A busy machine is no fault of the code under test.
settings.register_profile("poolhouse", deadline=None)
settings.load_profile("poolhouse")


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What programs under test keep of rooms stays out of this user's own.

    They compute exactly unless a test says otherwise: what one run answers is compared with
    another's, and which precision is quicker is timed at each start.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("POOLHOUSE_PRECISION", "exact")
        patch.setenv("POOLHOUSE_STATE", str(tmp_path_factory.mktemp("state")))
        yield


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say which tests were skipped, so that a person sees what CI would refuse."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped and os.environ.get("POOLHOUSE_NO_SKIPS"):
        terminalreporter.write_line(f"{len(skipped)} test(s) skipped: not allowed here", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """With POOLHOUSE_NO_SKIPS a skipped test fails the run (GPU tests are not even selected)."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    skipped = reporter.stats.get("skipped", []) if reporter else []
    if skipped and exitstatus == 0 and os.environ.get("POOLHOUSE_NO_SKIPS"):
        session.exitstatus = 1
