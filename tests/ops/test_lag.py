"""How late the loop is."""

import asyncio

from poolhouse_node.ops.lag import measure_lag
from tests.support.virtual_time import run_virtual


def test_a_loop_that_is_on_time_is_not_late():
    async def main():
        seen = []
        task = asyncio.create_task(measure_lag(seen.append))
        await asyncio.sleep(5.1)
        task.cancel()
        assert seen == [0.0] * 10

    run_virtual(main())
