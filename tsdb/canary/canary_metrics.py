"""Metrics of the canary."""

from __future__ import annotations

from tsdb.ops.metrics import DURATION_BUCKETS_S, counter, gauge, histogram

READ_PATHS = ("memory", "seam", "history", "promql")
PATHS = ("write", "freshness", *READ_PATHS)
RESULTS = ("exact", "mismatch", "missing", "unexpected")

checks_total = counter("tsdb_canary_checks_total", "Checks begun, by path; write: write requests.", "path", PATHS)
failures_total = counter(
    "tsdb_canary_check_failures_total",
    "Checks that found or got an error, by path and reason. differs: samples were wrong, missing or unexpected; "
    "not_visible: an acknowledged sample was not visible in time; else the reason of the refusal.",
    ("path", "reason"),
    [(path, "differs") for path in READ_PATHS] + [("freshness", "not_visible")],
)
samples_total = counter(
    "tsdb_canary_samples_total",
    "Samples of the checks, by path and result; a sample that stays missing counts again in each check.",
    ("path", "result"),
    [(path, result) for path in READ_PATHS for result in RESULTS],
)
last_success = gauge(
    "tsdb_canary_last_success_timestamp_seconds", "When a check of the path last succeeded; 0 before.", "path", PATHS
)
path_checked = gauge(
    "tsdb_canary_path_checked",
    "1 when the last check of the path had samples to check; 0 while it has none: no history yet, or memory has all.",
    "path",
    READ_PATHS,
)
oldest_checked = gauge(
    "tsdb_canary_oldest_checked_timestamp_seconds",
    "Time of the oldest sample that the last successful check of the path returned; 0 before.",
    "path",
    READ_PATHS,
)
freshness = histogram(
    "tsdb_canary_freshness_seconds",
    "Time from the acknowledgement of a write until a read through the querier returned it, the read included.",
    buckets=DURATION_BUCKETS_S,
)
partitions = gauge("tsdb_canary_partitions", "Partitions of the log, as the querier reports them.")
partitions_written = gauge("tsdb_canary_partitions_written", "Partitions that have samples of the canary.")
