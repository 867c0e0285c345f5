"""Metrics of shadow reads."""

from __future__ import annotations

from tsdb.ops.metrics import counter, gauge, histogram

RESULTS = ("equal", "recent", "different")
KINDS = ("series", "samples", "values", "coverage")
DROPS = ("queue_full", "bytes", "closing", "wrong_log", "other_partitions", "no_promql", "native_histograms")
SIDES = ("own", "shadow")

reads_total = counter(
    "tsdb_shadow_reads_total",
    "Compared reads by result; recent: they differ in samples of the last minute alone, which one side had later.",
    "result",
    RESULTS,
)
differences_total = counter(
    "tsdb_shadow_differences_total",
    "Differences of compared reads by kind: series that one side lacks, samples that one side lacks, values, and "
    "coverage (partitions, holes, warnings).",
    "kind",
    KINDS,
)
failures_total = counter(
    "tsdb_shadow_failures_total", "Reads that the shadow refused or did not answer, by reason.", "reason"
)
dropped_total = counter(
    "tsdb_shadow_dropped_total",
    "Reads that were not compared, by reason: the queue or its memory is full, the process ends, or the shadow is of "
    "another log, holds none of the partitions, or is a store, which evaluates no PromQL, or the answer has native "
    "histograms.",
    "reason",
    DROPS,
)
keep_failures_total = counter(
    "tsdb_shadow_keep_failures_total", "Differing reads that could not be kept in the folder."
)
duration = histogram(
    "tsdb_shadow_duration_seconds", "Time of the same reads here and at the shadow, transfer included.", "side", SIDES
)
shadow_partitions = gauge(
    "tsdb_shadow_partitions",
    "Partitions of the log that the shadow holds; reads are compared in these. 0: not known yet.",
)
reserved_bytes = gauge("tsdb_shadow_bytes", "Bytes of answers that wait for their comparison.")
