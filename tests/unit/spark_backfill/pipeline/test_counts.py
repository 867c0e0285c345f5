"""Counts of tasks reach the driver's metrics with the receipts of a batch, and places show windows overdue."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from spark_backfill.building.task import RECEIPT_DDL
from spark_backfill.pipeline.counts import OBSERVED, SUMS, count_batch, places
from tsdb.chunks.progress import Progress
from tsdb.chunks.stage_metrics import StageMetrics
from tsdb.log.interface import Watermarks
from tsdb.model.time_set import DEMO
from tsdb.ops.metrics import registry

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress

STAGE = "tsdb_chunk_stage_"
# Metric -> its labels beside the engine, and the sum that it grows by.
METRICS = {
    f"{STAGE}chunks_total": ({"kind": "late"}, "late_chunks"),
    f"{STAGE}samples_total": ({"kind": "late"}, "late_samples"),
    f"{STAGE}bytes_total": ({}, "bytes"),
    f"{STAGE}holes_total": ({}, "holes"),
    f"{STAGE}appends_total": ({}, "appends"),
    f"{STAGE}append_failures_total": ({"reason": "task"}, "append_failures"),
}
READ = {"tsdb_replay_records_total": "records_read", "tsdb_replay_announcements_total": "announcements_read"}


def batch(row: dict[str, int] | None) -> StreamingQueryProgress:
    made = SimpleNamespace(
        numInputRows=2,
        batchDuration=1_500,
        timestamp="2026-11-20T10:00:00.000Z",
        observedMetrics={} if row is None else {OBSERVED: row},
    )
    return cast("StreamingQueryProgress", made)


def values() -> dict[str, float]:
    stage = {
        name: registry.get_sample_value(name, {"engine": "spark", **labels}) or 0.0
        for name, (labels, _) in METRICS.items()
    }
    return stage | {name: registry.get_sample_value(name) or 0.0 for name in READ}


def test_every_count_of_a_receipt_is_summed() -> None:
    columns = {column.split()[0] for column in RECEIPT_DDL.split(", ")}
    assert columns - set(SUMS) == {"partition", "kind", "first", "end", "seconds"}
    assert set(SUMS) <= columns


def test_counts_of_tasks_reach_the_drivers_metrics() -> None:
    metrics, row = StageMetrics("spark"), {name: len(SUMS) - number for number, name in enumerate(SUMS)}
    before = values()
    assert count_batch(batch(row), metrics) == row
    grown = {name: value - before[name] for name, value in values().items()}
    assert grown == {name: row[sum_name] for name, (_, sum_name) in METRICS.items()} | {
        name: row[sum_name] for name, sum_name in READ.items()
    }
    assert registry.get_sample_value("tsdb_spark_pipeline_batch_duration_seconds") == 1.5


def test_a_batch_without_receipts_counts_nothing() -> None:
    metrics, before = StageMetrics("spark"), values()
    assert set(count_batch(batch(None), metrics).values()) == {0}
    assert values() == before


def test_a_window_is_overdue_for_spark_once_it_can_close() -> None:
    end_ms = 1_700_000_010_000
    committed = {0: Progress(4, end_ms), 1: Progress(7, end_ms + DEMO.window_ms)}
    now_ms = end_ms + DEMO.window_ms + DEMO.grace_ms
    one, other = places(committed, {0: Watermarks(0, 10)}, now_ms, DEMO)
    assert (one.ready, one.lag_records, one.windows_overdue) == (True, 6, 1)
    assert (other.ready, other.lag_records, other.windows_overdue) == (False, None, 0)
