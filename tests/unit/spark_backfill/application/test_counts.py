"""Counts of tasks of scheduled jobs reach the driver's metrics with the summaries of their runs."""

from __future__ import annotations

from collections.abc import Mapping

from spark_backfill.application.counts import count_run
from spark_backfill.application.runs import DOWNSAMPLE, MERGE_LATE, VERIFY, Cause, JobRun, RunOutcome, RunResult
from tsdb.ops.metrics import registry


def ended(result: RunResult, figures: Mapping[str, int]) -> JobRun:
    return JobRun(0, Cause.SCHEDULE, 1_000, RunOutcome(result, figures=figures))


def value(name: str, **labels: str) -> float:
    return registry.get_sample_value(f"tsdb_spark_job_{name}", labels) or 0.0


def test_chunks_written_add_up_over_runs() -> None:
    before = value("chunks_written_total", kind=MERGE_LATE)
    for _ in range(2):
        count_run(MERGE_LATE, ended(RunResult.OK, {"chunks_written": 7, "folded": 3}))
    count_run(MERGE_LATE, ended(RunResult.FAILED, {}))
    assert value("chunks_written_total", kind=MERGE_LATE) == before + 14


def test_problems_are_those_of_the_last_run_that_did_its_work() -> None:
    count_run(VERIFY, ended(RunResult.FINDINGS, {"problems": 4, "items": 9}))
    count_run(DOWNSAMPLE, ended(RunResult.FINDINGS, {"windows_refused": 2}))
    count_run(MERGE_LATE, ended(RunResult.FINDINGS, {"refused_corrupt_chunk": 1, "refused_not_redundant": 2}))
    count_run(VERIFY, ended(RunResult.FAILED, {}))
    assert [value("problems", kind=kind) for kind in (VERIFY, DOWNSAMPLE, MERGE_LATE)] == [4, 2, 3]
    count_run(VERIFY, ended(RunResult.OK, {"problems": 0}))
    assert value("problems", kind=VERIFY) == 0
