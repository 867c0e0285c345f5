"""Metrics of all history stores: count statements by kind, their failures, bytes and times."""

from __future__ import annotations

from tsdb.model.errors import TsdbError
from tsdb.ops.metrics import counter, gauge, histogram

CHUNK = "chunk"
DELETE = "delete"
LOADED = "loaded"
HOLE = "hole"
SERIES = "series"
METRIC_NAME = "metric_name"
READ = "read"
WRITES = (CHUNK, DELETE, LOADED, HOLE, SERIES, METRIC_NAME)

REASONS = (
    "unavailable",
    "timeout",
    "store_overloaded",
    "store_unauthorized",
    "store_not_created",
    "store_closed",
    "store_locked",
    "store_error",
    "disk_full",
    "disk_error",
    "inflight_full",
    "connection_busy",
    "chunk_too_large",
    "key_out_of_range",
    "corrupt_row",
    "tables_missing",
    "tables_unavailable",
    "tables_changed",
    "tables_expired",
    "tables_differs",
    "tables_corrupt",
    "tables_files_missing",
    "tables_file_corrupt",
    "corrupt_data",
    "internal",
)

statements_total = counter(
    "tsdb_history_statements_total", "Statements sent to history, by kind.", "kind", (*WRITES, READ)
)
failures_total = counter(
    "tsdb_history_failures_total", "Statements that history refused or did not answer, by reason.", "reason", REASONS
)
busy_retries_total = counter(
    "tsdb_history_busy_retries_total", "Writes sent again because a connection had no capacity for them yet."
)
written_bytes_total = counter("tsdb_history_written_bytes_total", "Bytes of chunks that history acknowledged.")
inflight_bytes = gauge("tsdb_history_inflight_bytes", "Bytes of writes that history has not answered yet.")
write_seconds = histogram("tsdb_history_write_duration_seconds", "Time from the start of a write to its answer.")
read_rows_total = counter("tsdb_history_read_rows_total", "Rows of chunks read from history.")
read_keys_total = counter("tsdb_history_read_keys_total", "Keys of chunks read from history without the chunks.")
read_bytes_total = counter("tsdb_history_read_bytes_total", "Bytes of chunks read from history.")


def count_failure(error: TsdbError) -> TsdbError:
    """Count an error by its reason, and return it."""
    failures_total.labels(error.reason).inc()
    return error
