"""Counts: work and progress of a pipeline's batches, as metrics of the driver's process."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any

from spark_backfill.writing.appender import appends_total
from tsdb.chunks.progress import Progress
from tsdb.log.interface import Watermarks
from tsdb.ops.metrics import counter, gauge

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

OBSERVED = "made"  # Name of the observation that sums the receipts of a batch.
SUMS = ("base_chunks", "late_chunks", "windows", "empty_windows", "holes", "samples", "bytes", "appends")

batches_total = counter("tsdb_spark_pipeline_batches_total", "Micro-batches that are done.")
items_total = counter("tsdb_spark_pipeline_items_total", "Work items done: windows and stretches of late minutes.")
chunks_total = counter(
    "tsdb_spark_pipeline_chunks_total", "Chunk records written, by kind.", label="kind", values=("base", "late")
)
chunk_bytes_total = counter("tsdb_spark_pipeline_chunk_bytes_total", "Bytes of records written, keys included.")
samples_total = counter("tsdb_spark_pipeline_samples_total", "Samples in the base chunks written.")
windows_total = counter(
    "tsdb_spark_pipeline_windows_total", "Windows finished.", label="result", values=("emitted", "empty")
)
holes_total = counter("tsdb_spark_pipeline_holes_total", "Losses found in the log and written as holes.")
batch_seconds = gauge("tsdb_spark_pipeline_batch_duration_seconds", "How long the last batch took.")
batch_timestamp = gauge("tsdb_spark_pipeline_batch_timestamp_seconds", "When the last batch was begun.")
position = gauge("tsdb_spark_pipeline_position", "Committed position.", label="partition")
emitted_through = gauge(
    "tsdb_spark_pipeline_emitted_through_timestamp_seconds",
    "Windows that end by this sample time are emitted and committed.",
    label="partition",
)
lag_records = gauge("tsdb_spark_pipeline_lag_records", "High watermark minus committed position.", label="partition")


def count_batch(progress: StreamingQueryProgress) -> dict[str, int]:
    """Add one batch to the counters; return the sums of its receipts."""
    sums = sums_of(progress)
    batches_total.inc()
    items_total.inc(progress.numInputRows)
    chunks_total.labels("base").inc(sums["base_chunks"])
    chunks_total.labels("late").inc(sums["late_chunks"])
    chunk_bytes_total.inc(sums["bytes"])
    samples_total.inc(sums["samples"])
    windows_total.labels("empty").inc(sums["empty_windows"])
    windows_total.labels("emitted").inc(sums["windows"] - sums["empty_windows"])
    holes_total.inc(sums["holes"])
    # Tasks count appends too, but nothing scrapes their processes.
    appends_total.inc(sums["appends"])
    batch_seconds.set(progress.batchDuration / 1000)
    batch_timestamp.set(datetime.fromisoformat(progress.timestamp.replace("Z", "+00:00")).timestamp())
    return sums


def sums_of(progress: StreamingQueryProgress) -> dict[str, int]:
    """Sums over the receipts of a batch; zeros for a batch without receipts."""
    row: Any = progress.observedMetrics.get(OBSERVED)
    return {name: int((row[name] if row else None) or 0) for name in SUMS}


def lags(committed: Mapping[int, Progress], marks: Mapping[int, Watermarks]) -> dict[int, int]:
    """Records after the committed position, by partition; only partitions with a known high watermark."""
    return {number: marks[number].high - progress.position for number, progress in committed.items() if number in marks}


def show_place(committed: Mapping[int, Progress], marks: Mapping[int, Watermarks]) -> None:
    """Set the gauges of position, emitted_through and lag of all partitions."""
    for number, progress in committed.items():
        position.labels(str(number)).set(progress.position)
        emitted_through.labels(str(number)).set(progress.emitted_through_ms / 1000)
    for number, lag in lags(committed, marks).items():
        lag_records.labels(str(number)).set(lag)
