"""The threads that executors run handlers in."""

from __future__ import annotations

import gc
import warnings

from support.servers.logs import wait_until
from tsdb.parallel_consumer.executors.runtimes import EventLoop


async def leave() -> None:
    raise SystemExit("the handler exits")


def run_to_its_exit() -> None:
    loop = EventLoop("exits")
    loop.start()
    loop.spawn(leave)
    wait_until(lambda: loop.failure is not None)
    loop.close()


def test_a_loop_that_a_coroutine_exited_is_closed() -> None:
    gc.collect()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always", ResourceWarning)
        run_to_its_exit()
        gc.collect()
    assert [str(one.message) for one in found] == []
