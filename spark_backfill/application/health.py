"""Health: reports the state of each kind of job, for `/-/ready` and for `tsdb spark jobs`. Pure."""

from __future__ import annotations

from spark_backfill.application.runs import JobState
from tsdb.ops.health import Details


def state_text(state: JobState, *, live: bool = True) -> str:
    """The state as text: running, paused, failed N times, or idle. It is stopped without a live application, and paused
    is shown in any case.
    """
    runs = state.runs
    if live and runs is not None and runs.is_running:
        return "running"
    if state.paused:
        return "paused"
    if not live:
        return "stopped"
    if runs is not None and runs.failures:
        return f"failed {runs.failures} time{'s' if runs.failures > 1 else ''}"
    return "idle"


def job_health(state: JobState, next_due_ms: int | None, *, live: bool = True) -> Details:
    """Health of one kind of job: its state, last run and next run. A job never makes an application unready."""
    runs = state.runs
    last = runs.last if runs else None
    outcome = last.outcome if last else None
    return {
        "state": state_text(state, live=live),
        "last_begin_ms": last.begin_ms if last else None,
        "took_ms": last.took_ms if last else None,
        "result": outcome.result.value if outcome else None,
        "reason": (outcome.reason or None) if outcome else None,
        "failures": runs.failures if runs else 0,
        "next_due_ms": next_due_ms,
    }
