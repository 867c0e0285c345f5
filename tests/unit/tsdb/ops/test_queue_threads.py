"""Queue threads do all work that was queued, also what came before their start, and end with it."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from tsdb.ops.queue_threads import QueueThreads


def test_queued_work_is_finished_before_the_threads_end() -> None:
    done: list[int] = []
    threads: QueueThreads[int] = QueueThreads("work", 2, done.append)
    threads.put(0)
    threads.start()
    for number in range(1, 100):
        threads.put(number)
    assert threads.join(60.0)
    assert sorted(done) == list(range(100))
    assert len(threads) == 2


def test_work_that_came_after_the_end_is_left_to_the_caller() -> None:
    done: list[int] = []
    threads: QueueThreads[int] = QueueThreads("work", 1, done.append)
    threads.start()
    assert threads.join(60.0)
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
    assert going.wait(60.0)
    assert not threads.join(0.0)
    release.set()
    assert threads.join(60.0)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has a niceness of single threads")
@pytest.mark.parametrize("niceness", [0, 10])
def test_threads_with_niceness_and_those_they_start_let_others_go_first(niceness: int) -> None:
    seen: list[int] = []

    def look(_: object = None) -> None:
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    def work(_: int) -> None:
        look()
        helper = threading.Thread(target=look)
        helper.start()
        helper.join(60.0)

    threads: QueueThreads[int] = QueueThreads("work", 1, work, niceness=niceness)
    threads.start()
    threads.put(0)
    assert threads.join(60.0)
    look()
    own = seen.pop()
    assert seen == [own + niceness] * 2
