"""Health: state of each partition of a running pipeline, for `/-/ready`."""

from __future__ import annotations

from spark_backfill.pipeline.counts import lags
from spark_backfill.pipeline.pipeline import Pipeline
from tsdb.ops.health import PartitionHealth


def pipeline_health(running: Pipeline) -> dict[int, PartitionHealth]:
    """A partition is ready when the log's end is known. Lag never makes it unready: no reader depends on a pipeline."""
    committed = running.committed
    lag = lags(committed, running.marks)
    return {
        number: PartitionHealth(
            number in lag,
            "" if number in lag else "log_unavailable",
            {
                "lag_records": lag.get(number),
                "position": progress.position,
                "emitted_through_ms": progress.emitted_through_ms,
            },
        )
        for number, progress in committed.items()
    }
