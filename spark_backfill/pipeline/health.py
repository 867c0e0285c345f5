"""Health: how each partition of a running pipeline stands, as `/-/ready` lists it."""

from __future__ import annotations

from spark_backfill.pipeline.pipeline import Pipeline
from tsdb.ops.health import PartitionHealth


def partitions_of(running: Pipeline) -> dict[int, PartitionHealth]:
    """Ready once the log's end is known; lag never makes a stream unready, for nothing is read from it."""
    committed, marks = running.committed, running.marks
    return {
        number: PartitionHealth(
            number in marks,
            "" if number in marks else "log_unavailable",
            {
                "lag_records": marks[number].high - progress.position if number in marks else None,
                "position": progress.position,
                "emitted_through_ms": progress.emitted_through_ms,
            },
        )
        for number, progress in committed.items()
    }
