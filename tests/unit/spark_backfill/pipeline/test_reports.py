"""Which of Spark's reports are of batches: those of a query that waits carry the number of the next one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from spark_backfill.pipeline.pipeline import batches_after

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

DONE = {"latestOffset": 3, "addBatch": 210, "commitOffsets": 9, "triggerExecution": 240}
IDLE = {"latestOffset": 2, "triggerExecution": 2}


def query(*reports: tuple[int, dict[str, int]]) -> StreamingQuery:
    """A query with these reports, (number of the batch, durations), oldest first."""
    recent = [SimpleNamespace(batchId=number, durationMs=durations) for number, durations in reports]
    return cast("StreamingQuery", SimpleNamespace(recentProgress=recent, lastProgress=recent[-1] if recent else None))


def numbers_after(number: int, *reports: tuple[int, dict[str, int]]) -> list[int]:
    return [report.batchId for report in batches_after(query(*reports), number)]


def test_each_batch_is_reported_once_and_in_order() -> None:
    reports = ((0, DONE), (1, DONE), (2, DONE))
    assert numbers_after(-1) == []
    assert numbers_after(-1, *reports) == [0, 1, 2]
    assert numbers_after(1, *reports) == [2]
    assert numbers_after(2, *reports) == []


def test_a_report_of_a_query_that_waits_is_no_batch_and_hides_none() -> None:
    assert numbers_after(-1, (0, IDLE)) == []
    assert numbers_after(0, (0, DONE), (1, IDLE), (1, IDLE)) == []
    assert numbers_after(0, (0, DONE), (1, IDLE), (1, DONE)) == [1]
    assert numbers_after(0, (0, DONE), (1, IDLE), (1, DONE), (2, IDLE)) == [1]
    assert numbers_after(1, (1, DONE), (2, IDLE), (2, DONE), (3, IDLE), (3, DONE), (4, IDLE)) == [2, 3]
