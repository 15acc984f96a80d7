"""Rules for every test: what CI must run may not be skipped."""

import os

import pytest
from hypothesis import settings

# A busy machine is no fault of the code under test.
settings.register_profile("poolhouse", deadline=None)
settings.load_profile("poolhouse")


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
