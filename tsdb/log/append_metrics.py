"""Append metrics, shared by both logs."""

from __future__ import annotations

from tsdb.ops.metrics import counter

REASONS = (
    "corrupt_data",
    "disk_error",
    "disk_full",
    "internal",
    "invalid_record",
    "invalid_timestamp",
    "log_closed",
    "log_error",
    "log_locked",
    "log_unauthorized",
    "log_unavailable",
    "not_enough_replicas",
    "offset_unknown",
    "producer_fenced",
    "queue_full",
    "record_too_large",
    "topic_deleted",
    "topic_recreated",
    "unknown_partition",
    "unknown_topic",
)

appends_total = counter("tsdb_log_appends_total", "Records that the log acknowledged.")
append_failures_total = counter(
    "tsdb_log_append_failures_total",
    "Records that the log refused or did not acknowledge, by reason.",
    label="reason",
    values=REASONS,
)
