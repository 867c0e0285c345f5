"""Counts: exports the state of the scheduled jobs as metrics of the driver's process."""

from __future__ import annotations

from itertools import product

from spark_backfill.application.due import Due
from spark_backfill.application.runs import KINDS, JobRun, JobState, RunResult
from tsdb.ops.metrics import counter, gauge

runs_total = counter(
    "tsdb_spark_job_runs_total",
    "Ended runs of scheduled jobs, by kind and result. findings: the job found something that needs an operator;"
    " stopped: the application ended first.",
    label=("kind", "result"),
    values=tuple(product(KINDS, (result.value for result in RunResult))),
)
running = gauge("tsdb_spark_job_running", "1 while a run of this kind of job runs, else 0.", label="kind", values=KINDS)
paused = gauge("tsdb_spark_job_paused", "1 while this kind of job is paused, else 0.", label="kind", values=KINDS)
failures = gauge("tsdb_spark_job_failures", "Failed runs in a row; 0 after an ok one.", label="kind", values=KINDS)
last_success_timestamp = gauge(
    "tsdb_spark_job_last_success_timestamp_seconds",
    "End of the last run with result ok; 0 without such a run.",
    label="kind",
    values=KINDS,
)
next_due_timestamp = gauge(
    "tsdb_spark_job_next_due_timestamp_seconds",
    "Time of the next run; 0 while no run is due: paused, running, or without a schedule.",
    label="kind",
    values=KINDS,
)
duration = gauge(
    "tsdb_spark_job_duration_seconds", "How long the last ended run took; 0 before it.", label="kind", values=KINDS
)
chunks_written_total = counter(
    "tsdb_spark_job_chunks_written_total",
    "Chunk records that the tasks of ended runs wrote, by kind; as in the summaries of the jobs.",
    label="kind",
    values=KINDS,
)
problems = gauge(
    "tsdb_spark_job_problems",
    "Problems that the last ended run of verify found, or what the last run of another job refused.",
    label="kind",
    values=KINDS,
)
meta_failures_total = counter(
    "tsdb_spark_jobs_meta_failures_total",
    "Failed reads and writes of the jobs' records in `meta`; tried again.",
)


def count_run(kind: str, run: JobRun) -> None:
    """Add an ended run to the counters."""
    assert run.outcome is not None
    runs_total.labels(kind, run.outcome.result.value).inc()
    figures = run.outcome.figures
    chunks_written_total.labels(kind).inc(figures.get("chunks_written", 0))
    if run.outcome.result in (RunResult.OK, RunResult.FINDINGS):
        problems.labels(kind).set(sum(number for name, number in figures.items() if _is_problem(name)))


def _is_problem(figure: str) -> bool:
    return figure in ("problems", "windows_refused") or figure.startswith("refused_")


def show(kind: str, state: JobState, due: Due | None) -> None:
    """Set the gauges of one kind."""
    runs = state.runs
    is_running = runs is not None and runs.is_running
    running.labels(kind).set(is_running)
    paused.labels(kind).set(state.paused)
    next_due_timestamp.labels(kind).set(0 if due is None or is_running else due.at_ms / 1000)
    if runs is None:
        return
    failures.labels(kind).set(runs.failures)
    if runs.last_ok is not None:
        last_success_timestamp.labels(kind).set((runs.last_ok.end_ms or 0) / 1000)
    ended = next((run for run in reversed(runs.runs) if run.end_ms is not None), None)
    if ended is not None:
        duration.labels(kind).set((ended.took_ms or 0) / 1000)
