"""Metrics of snapshots, and the one log line of a snapshot that is not used."""

from __future__ import annotations

from pathlib import Path

from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge, histogram
from tsdb.store.snapshots.reasons import DAMAGED, REASONS

DURATION_BUCKETS_S = (0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0)
DISK, LOG, DRAIN = "disk", "log", "drain"  # Reasons of a failed write.

log = get_logger(__name__)

restored_total = counter("tsdb_store_snapshots_restored_total", "Heads that a start restored from a snapshot.")
passed_over_total = counter(
    "tsdb_store_snapshots_passed_over_total",
    "Snapshots that a start did not use, by reason; it replayed the log instead.",
    label="reason",
    values=REASONS,
)
writes_total = counter("tsdb_store_snapshot_writes_total", "Snapshots begun to be written.")
write_failures_total = counter(
    "tsdb_store_snapshot_write_failures_total",
    "Snapshots not written, by reason; the former one stays.",
    label="reason",
    values=(DISK, LOG, DRAIN),
)
write_seconds = histogram(
    "tsdb_store_snapshot_write_duration_seconds",
    "Time to write one snapshot, pauses included.",
    buckets=DURATION_BUCKETS_S,
)
written_timestamp = gauge(
    "tsdb_store_snapshot_timestamp_seconds",
    "Time of the last snapshot that was written or restored.",
    label="partition",
)
file_bytes = gauge("tsdb_store_snapshot_bytes", "Size of the last snapshot.", label="partition")


def passed_over(path: Path, error: TsdbError) -> None:
    """Count and log a snapshot that is not used."""
    reason = error.reason if error.reason in REASONS else DAMAGED
    passed_over_total.labels(reason).inc()
    log.warning("snapshot passed over", file=str(path), reason=reason, error=error.message)


def observe(partition: int, written_ms: int, size: int) -> None:
    """Set the gauges of a partition's snapshot."""
    written_timestamp.labels(str(partition)).set(written_ms / 1000)
    file_bytes.labels(str(partition)).set(size)
