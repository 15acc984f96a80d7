"""What all tests of the engine share."""

import pytest
import torch

_WHERE_SPEED_COUNTS = ("model", "perf", "gpu")


@pytest.fixture(autouse=True)
def one_thread(request):
    """Small models on one thread.

    On a machine with other work, threads of tiny products mostly wait for each other: measured
    20 times slower.
    """
    if any(request.node.get_closest_marker(each) for each in _WHERE_SPEED_COUNTS):
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
