"""Queue threads do all work that was queued, also what came before their start, and end with it."""

from __future__ import annotations

import threading

from tsdb.ops.queue_threads import QueueThreads


def test_queued_work_is_finished_before_the_threads_end() -> None:
    done: list[int] = []
    threads: QueueThreads[int] = QueueThreads("work", 2, done.append)
    threads.put(0)
    threads.start()
    for number in range(1, 100):
        threads.put(number)
    assert threads.join(10.0)
    assert sorted(done) == list(range(100))
    assert len(threads) == 2


def test_work_that_came_after_the_end_is_left_to_the_caller() -> None:
    done: list[int] = []
    threads: QueueThreads[int] = QueueThreads("work", 1, done.append)
    threads.start()
    assert threads.join(10.0)
    threads.put(1)
    threads.put(2)
    assert list(threads.rest()) == [1, 2]
    assert list(threads.rest()) == []
    assert done == []


def test_a_thread_that_still_works_is_not_joined() -> None:
    going, release = threading.Event(), threading.Event()

    def work(_: int) -> None:
        going.set()
        release.wait()

    threads: QueueThreads[int] = QueueThreads("work", 1, work)
    threads.start()
    threads.put(1)
    assert going.wait(10.0)
    assert not threads.join(0.0)
    release.set()
    assert threads.join(10.0)
