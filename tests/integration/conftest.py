"""What tests of whole programs start from."""

import json
from collections.abc import Iterator

import pytest

from tests.support.program import Program


@pytest.fixture
def signal_url() -> Iterator[str]:
    """The address of a control plane of this test's own, a process on free ports."""
    control = Program.start(
        *("control", "--host", "127.0.0.1", "--port", "0", "--admin-port", "0", "--json")
    )
    try:
        control.until_answering()
        yield json.loads(control.stdout.splitlines()[0])["signal_url"]
    finally:
        control.kill()
