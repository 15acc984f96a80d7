"""What ``poolhouse up`` does when the layers cannot be dealt at once."""

from types import SimpleNamespace

import pytest

from poolhouse_node.cli import up
from poolhouse_node.device.dealing import StartError

REFUSED = "worker-1 couldn't load its layers (These layers need too much)"


class FakeHost:
    """Its first starts fail; devices lend something else after as many of them as said."""

    def __init__(self, failures: list[StartError], changes: int) -> None:
        self.failures, self.changes, self.starts = failures, changes, 0

    async def start(self) -> None:
        self.starts += 1
        if self.failures:
            raise self.failures.pop(0)

    @property
    def has_changed(self) -> bool:
        return self.starts <= self.changes


@pytest.fixture
def view():
    said = []
    return SimpleNamespace(say=said.append, said=said)


async def test_a_device_that_lends_less_is_dealt_less(view):
    host = FakeHost([StartError(REFUSED)] * 2, changes=2)
    await up._start(host, view)
    assert host.starts == 3
    assert view.said == [f"{REFUSED} Dealing again with less for it …"] * 2


@pytest.mark.parametrize(("is_final", "changes"), [(False, 0), (True, 9)])
async def test_a_deal_that_would_fail_again_is_the_end(view, is_final, changes):
    host = FakeHost([StartError(REFUSED, is_final=is_final)], changes)
    with pytest.raises(StartError, match="worker-1"):
        await up._start(host, view)
    assert host.starts == 1
    assert view.said == []
