"""Counts: exports work and progress of a pipeline's batches as metrics of the driver's process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from tsdb.chunks.engine import windows_overdue
from tsdb.chunks.progress import Progress
from tsdb.chunks.stage_metrics import StageMetrics, StagePlace
from tsdb.log.interface import Watermarks
from tsdb.model.time_set import TimeSet
from tsdb.ops.metrics import counter, gauge
from tsdb.replay.replay import records_total
from tsdb.replay.series_feed import announcements_total

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

OBSERVED = "made"  # Name of the observation that sums the receipts of a batch.
SUMS = (
    *("base_chunks", "late_chunks", "windows", "empty_windows", "holes", "samples", "late_samples", "bytes"),
    *("appends", "append_failures", "records_read", "announcements_read"),
)
TASK_FAILURE = "task"  # Reason of an append that a task sent again; its log line has the cause.

batches_total = counter("tsdb_spark_pipeline_batches_total", "Micro-batches that are done.")
items_total = counter("tsdb_spark_pipeline_items_total", "Work items done: windows and stretches of late minutes.")
batch_seconds = gauge("tsdb_spark_pipeline_batch_duration_seconds", "How long the last batch took.")
batch_timestamp = gauge("tsdb_spark_pipeline_batch_timestamp_seconds", "When the last batch was begun.")


def count_batch(progress: StreamingQueryProgress, metrics: StageMetrics) -> dict[str, int]:
    """Add one batch to the counters; return the sums of its receipts. Tasks run in processes that nothing scrapes, so
    their counts come with the receipts."""
    sums = sums_of(progress)
    batches_total.inc()
    items_total.inc(progress.numInputRows)
    for kind, chunks, samples in (("base", "base_chunks", "samples"), ("late", "late_chunks", "late_samples")):
        metrics.chunks[kind].inc(sums[chunks])
        metrics.samples[kind].inc(sums[samples])
    metrics.bytes.inc(sums["bytes"])
    metrics.windows["empty"].inc(sums["empty_windows"])
    metrics.windows["emitted"].inc(sums["windows"] - sums["empty_windows"])
    metrics.holes.inc(sums["holes"])
    metrics.appends.inc(sums["appends"])
    metrics.append_failed(TASK_FAILURE, sums["append_failures"])
    records_total.inc(sums["records_read"])
    announcements_total.inc(sums["announcements_read"])
    batch_seconds.set(progress.batchDuration / 1000)
    batch_timestamp.set(datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp())
    return sums


def sums_of(progress: StreamingQueryProgress) -> dict[str, int]:
    """Sums over the receipts of a batch; zeros for a batch without receipts."""
    row: Any = progress.observedMetrics.get(OBSERVED)
    return {name: int((row[name] if row else None) or 0) for name in SUMS}


def places(
    committed: Mapping[int, Progress], marks: Mapping[int, Watermarks], now_ms: int, times: TimeSet
) -> list[StagePlace]:
    """Every partition, as metrics and probes show it. It is ready when the log's end is known."""
    return [
        StagePlace(
            number,
            number in marks,
            marks[number].high - progress.position if number in marks else None,
            progress,
            windows_overdue(progress.emitted_through_ms, now_ms, times, "spark"),
        )
        for number, progress in committed.items()
    ]
