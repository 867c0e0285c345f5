"""Totals of tasks and executors stay true when Spark forgets executors. No JVM here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from spark_backfill.cluster import ExecutorState, Totals

ONE = ExecutorState("1", True, "", tasks_ok=5, tasks_failed=1, tasks_running=2, heap_peak=100, python_peak=10)
TWO = replace(ONE, name="2", tasks_ok=3, tasks_failed=0)


def test_each_call_adds_only_what_is_new() -> None:
    totals = Totals()
    totals.add([ONE, TWO])
    more = totals.add([replace(ONE, tasks_ok=9, tasks_failed=2), TWO])
    assert (more.ok, more.failed, more.lost) == (4, 1, 0)
    assert (totals.ok, totals.failed) == (12, 2)


def test_an_executor_that_spark_forgets_keeps_its_tasks() -> None:
    totals = Totals()
    totals.add([ONE, TWO])
    totals.add([TWO])
    assert (totals.ok, totals.failed) == (8, 1)


@pytest.mark.parametrize(
    ("because", "lost"),
    [
        ("Worker shutting down", 1),
        ("Executor heartbeat timed out after 120000 ms", 1),
        ("", 1),
        ("Executor killed by driver.", 0),
    ],
)
def test_an_executor_is_lost_once_unless_the_driver_removed_it(because: str, lost: int) -> None:
    totals = Totals()
    totals.add([ONE])
    gone = replace(ONE, alive=False, removed_because=because)
    assert totals.add([gone]).lost == lost
    assert totals.add([gone]).lost == 0
    assert totals.lost == lost
