"""A daily run as a scheduler makes it: tasks in their order, with retries. Needs `kafka-tsdb[spark]`; no scheduler.

TSDB_LOG=kafka://... TSDB_HISTORY=cassandra://... python examples/spark_daily.py 2026-11-20 /data/incoming /data/copies

In Airflow each function of TASKS is a task of a DAG with `schedule="@daily"`, and `run_task` is `retries`. The day is
at least two days ago: newer samples are written to a gateway. A rerun of a day changes nothing.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from graphlib import TopologicalSorter

from pyspark.sql import SparkSession

import spark_backfill
from spark_backfill import JobResult
from tsdb.model.errors import Overloaded, TsdbError, Unavailable

ATTEMPTS = 3
FIRST_DELAY_S = 30.0


@dataclass(frozen=True)
class Day:
    """The day [start, end) of a run, UTC. incoming: folder with a file for each day. copies: folder for exports."""

    start: date
    incoming: str
    copies: str

    @property
    def end(self) -> date:
        return self.start + timedelta(days=1)


def import_day(day: Day) -> JobResult:
    """Import the file of the day. Its job id is the day, so that every attempt writes the same keys."""
    return spark_backfill.import_files(
        session(),
        spark_backfill.connect(),
        f"{day.incoming}/{day.start}.parquet",
        job_id=f"daily-{day.start}",
        rejects=f"{day.copies}/rejects/{day.start}",
        allow_rejects=True,
    )


def fold_late(day: Day) -> JobResult:
    """Fold the late fragments of all of history, and delete the rows that the fold of an earlier day covers."""
    return spark_backfill.merge_late(session(), spark_backfill.connect(), apply=True)


def verify_day(day: Day) -> JobResult:
    """Compare log, chunks and history; a difference is not ok, and an operator looks at the rows of the result."""
    return spark_backfill.verify(session(), spark_backfill.connect(), day.start, day.end)


def export_day(day: Day) -> JobResult:
    """Copy the day as Parquet. An attempt that failed left a folder, so it is replaced."""
    return spark_backfill.export(
        session(),
        spark_backfill.connect(),
        f"{day.copies}/{day.start}",
        start=day.start,
        end=day.end,
        overwrite=True,
    )


# Each task with the tasks that must be done before it.
TASKS: dict[Callable[[Day], JobResult], set[Callable[[Day], JobResult]]] = {
    import_day: set(),
    fold_late: {import_day},
    verify_day: {fold_late},
    export_day: {fold_late},
}


def run_task(task: Callable[[Day], JobResult], day: Day, delay_s: float = FIRST_DELAY_S) -> JobResult:
    """Run a task. Repeats it while log, history or loader are unavailable or busy; raises any other error."""
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return task(day)
        except (Unavailable, Overloaded) as error:
            if attempt == ATTEMPTS:
                raise
            print(f"{task.__name__}: attempt {attempt} of {ATTEMPTS}: {error}; again in {delay_s:g} s", file=sys.stderr)
            time.sleep(delay_s)
            delay_s *= 2
    raise AssertionError("the last attempt returns or raises")


def run_day(day: Day) -> Iterator[JobResult]:
    """Run all tasks in order; stop at the first that fails or finds something for an operator."""
    for task in TopologicalSorter(TASKS).static_order():
        result = run_task(task, day)
        yield result
        if not result.ok:
            raise TsdbError(f"{task.__name__} of {day.start} needs an operator: {result.rows}", reason="not_ok")


def session() -> SparkSession:
    """The session of this process; its first task starts it."""
    return SparkSession.builder.appName("daily").getOrCreate()


def main(day: str, incoming: str, copies: str) -> None:
    for result in run_day(Day(date.fromisoformat(day), incoming, copies)):
        print(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
