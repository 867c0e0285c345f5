"""Due times: when the next run of an idle job kind begins, and why. Pure; it follows from the records alone.

- A run is due at each time of the schedule. Due times that pass during a run, or while no application runs, are merged
into one run. Due times that pass during a pause are dropped. - A failed run is repeated after a delay, which doubles
with each failure. The retry covers due times that passed during the failed run. A later due time of the schedule does
not wait for the delay. - A run that was stopped with its application is repeated at once. - A request begins a run at
once, also during a pause, and also of a kind without a schedule.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from spark_backfill.application.runs import Cause, JobRuns, JobState, RunResult
from spark_backfill.application.schedule import Schedule

RETRY_MS_MIN, RETRY_MS_MAX = 60_000, 3_600_000


@dataclass(frozen=True, slots=True)
class Due:
    """The next run. at_ms: earliest time of its start, ms since the epoch."""

    at_ms: int
    cause: Cause


def next_due(schedule: Schedule | None, state: JobState) -> Due | None:
    """The next run of a kind that is idle. None: only a request begins one."""
    runs = state.runs
    if runs is None:
        return None
    if state.requested > runs.requests_done:
        return Due(0, Cause.REQUEST)
    if (again := _stopped_request(runs)) is not None:
        return again
    if state.paused or schedule is None:
        return None
    return min(_dues(schedule, state, runs), key=lambda due: due.at_ms)


def retry_delay_ms(failures: int) -> int:
    """Delay after this number of failures in a row, at least 1."""
    return min(RETRY_MS_MIN << min(failures - 1, 10), RETRY_MS_MAX)


def _stopped_request(runs: JobRuns) -> Due | None:
    """A requested run that ended with its application. The request still counts, also for a kind without a schedule."""
    last = runs.last
    if last is None or last.end_ms is None or last.outcome is None or last.cause is not Cause.REQUEST:
        return None
    return Due(last.end_ms, Cause.REQUEST) if last.outcome.result is RunResult.STOPPED else None


def _dues(schedule: Schedule, state: JobState, runs: JobRuns) -> Iterator[Due]:
    last, since_ms = runs.last, runs.since_ms
    if last is not None:
        since_ms = last.begin_ms
        if last.end_ms is not None and last.outcome is not None:
            if last.outcome.result is RunResult.FAILED:
                since_ms = last.end_ms
                yield Due(last.end_ms + retry_delay_ms(runs.failures), Cause.RETRY)
            elif last.outcome.result is RunResult.STOPPED:
                yield Due(last.end_ms, Cause.RETRY)
    yield Due(schedule.next_after(max(since_ms, state.switched_ms)), Cause.SCHEDULE)
