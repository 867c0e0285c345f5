"""Reports: reads Spark's progress reports of a query's batches.

Spark also reports a query that waits, every 10 s. Such a report carries the number of the next batch, which has not
begun; only the report of a batch has the duration of its work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery

BATCH_WORK = "addBatch"  # A key of Spark's `durationMs`.


def batches_after(query: StreamingQuery, number: int) -> list[StreamingQueryProgress]:
    """Reports of the batches done after the batch `number`, oldest first.

    Spark keeps the last 100 reports as objects of the JVM. Fetching all of them takes as long as a small batch, so it
    is done only when more than one report may be new.
    """
    last = query.lastProgress
    if last is None or last.batchId <= number:
        return []
    if last.batchId == number + 1:
        return [last] if is_batch(last) else []
    return [each for each in query.recentProgress if each.batchId > number and is_batch(each)]


def is_batch(report: StreamingQueryProgress) -> bool:
    """Whether the report is of a batch that is done. False: the query waits."""
    return BATCH_WORK in report.durationMs
