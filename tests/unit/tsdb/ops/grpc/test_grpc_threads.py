"""The thread pool of a gRPC server counts the calls that run or wait."""

from __future__ import annotations

import threading

import pytest

from support.servers.logs import wait_until
from tsdb.ops.grpc.threads import CallThreads


def test_calls_count_until_they_end_and_a_refused_one_does_not_count() -> None:
    threads, goes_on = CallThreads(1, "calls"), threading.Event()
    for _ in range(3):
        threads.submit(goes_on.wait, 60.0)
    assert (threads.queued, threads.unfinished) == (2, 3)
    threads.shutdown(wait=False)
    with pytest.raises(RuntimeError):
        threads.submit(goes_on.wait, 60.0)
    assert threads.unfinished == 3
    goes_on.set()
    wait_until(lambda: threads.unfinished == 0)
    assert threads.queued == 0
