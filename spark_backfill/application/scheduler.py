"""Scheduler: begins and ends the runs of jobs in the journal, by schedules and requests. It has no thread and uses no
Spark.

A begin is in the journal before the job starts, and an end before the next begin of its kind. So a kind never has two
runs at a time, and an application that was killed leaves a run that its successor finds.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from spark_backfill.application import counts
from spark_backfill.application.due import Due, next_due
from spark_backfill.application.job_records import ApplicationRecord, Planned
from spark_backfill.application.journal import BEAT_MS, Journal
from spark_backfill.application.runs import Cause, JobRun, JobRuns, JobState, RunOutcome, RunResult
from spark_backfill.application.schedule import Schedule
from tsdb.model.clock import Clock
from tsdb.ops.logs import get_logger

INTERRUPTED = RunOutcome(RunResult.FAILED, "interrupted", "the application was killed during the run")

log = get_logger(__name__)


class Scheduler:
    """schedules: one for each kind of this application; None: only a request begins a run. One thread."""

    def __init__(self, journal: Journal, schedules: Mapping[str, Schedule | None], clock: Clock) -> None:
        self._journal = journal
        self._schedules = schedules
        self._clock = clock
        # Not read back from the journal, because a begin whose acknowledgement was lost did not happen.
        self._runs: dict[str, JobRuns] = {}
        self._record = ApplicationRecord(clock.now_ms())
        self._beat_ms: int | None = None
        self.results: Counter[tuple[str, RunResult]] = Counter()
        """Runs that ended since the start, by kind and result."""

    def open(self) -> None:
        """Take over the records of an earlier application. Call it when no other application runs.

        A run without an end was interrupted: its end is recorded now. Raises as Journal.refresh and as the log does; a
        second call continues.
        """
        self._journal.refresh()
        now_ms = self._clock.now_ms()
        for kind in self._schedules:
            runs = self._journal.view.states[kind].runs
            if runs is None:
                self._write(kind, JobRuns(now_ms))
                continue
            self._runs[kind] = runs
            if runs.is_running:
                self.end(kind, INTERRUPTED, now_ms)

    @property
    def superseded(self) -> bool:
        """Whether another application has begun since, as of the last call of `due`. Of two, the later one works."""
        newest = self._journal.view.application
        if self._beat_ms is None or newest is None or newest.record.ended:
            return False
        return newest.record.since_ms != self._record.since_ms

    def due(self) -> list[tuple[str, Due]]:
        """Kinds whose next run may begin now. Reads new pauses and requests first; raises as Journal.refresh."""
        self._journal.refresh()
        now_ms = self._clock.now_ms()
        nexts = {kind: self.next_due(kind) for kind in self._schedules}
        for kind, due in nexts.items():
            counts.show(kind, self.state(kind), due)
        return [(kind, due) for kind, due in nexts.items() if due is not None and due.at_ms <= now_ms]

    @property
    def kinds(self) -> tuple[str, ...]:
        return tuple(self._schedules)

    def next_due(self, kind: str) -> Due | None:
        """The next run of a kind. None during a run, and when only a request begins one."""
        state = self.state(kind)
        if state.runs is None or state.runs.is_running:
            return None
        return next_due(self._schedules[kind], state)

    def state(self, kind: str) -> JobState:
        """State of a kind, as read and written last."""
        return replace(self._journal.view.states[kind], runs=self._runs.get(kind))

    def last_ok(self, kind: str) -> JobRun | None:
        """The last run of a kind with result ok."""
        runs = self._runs.get(kind)
        return runs.last_ok if runs else None

    @property
    def imported_ms(self) -> int | None:
        """Broker time of the begin of the newest import, as read last; None without an import."""
        return self._journal.view.imported_ms

    def begin(self, kind: str, cause: Cause) -> None:
        """Record the begin of a run. It answers all requests that are known. Raises as the log does."""
        requested = self._journal.view.states[kind].requested
        self._write(kind, self._runs[kind].begun(self._clock.now_ms(), cause, requested))
        log.info("job begun", kind=kind, cause=cause.value)

    def end(self, kind: str, outcome: RunOutcome, at_ms: int) -> None:
        """Record the end of a run. Raises the errors of the log; the run has not ended then."""
        ended = self._runs[kind].ended(at_ms, outcome)
        self._write(kind, ended)
        run = ended.runs[-1]
        counts.count_run(kind, run)
        self.results[kind, outcome.result] += 1
        fields = {"kind": kind, "result": outcome.result.value, "took_ms": run.took_ms, "failures": ended.failures}
        if outcome.result in (RunResult.FAILED, RunResult.FINDINGS):
            log.warning("job ended", **fields, reason=outcome.reason, error=outcome.text)
        else:
            log.info("job ended", **fields)

    def beat(self, *, ended: bool = False) -> None:
        """Write the application's record when it changed, or when it is BEAT_MS old. Raises as the log does."""
        now_ms = self._clock.now_ms()
        plans = {kind: self._planned(kind) for kind in self._schedules}
        record = ApplicationRecord(self._record.since_ms, ended, plans)
        if record == self._record and self._beat_ms is not None and now_ms - self._beat_ms < BEAT_MS:
            return
        self._journal.write_application(record)
        self._record, self._beat_ms = record, now_ms

    def _write(self, kind: str, runs: JobRuns) -> None:
        self._journal.write_runs(kind, runs)
        self._runs[kind] = runs

    def _planned(self, kind: str) -> Planned:
        schedule, due = self._schedules[kind], self.next_due(kind)
        return Planned(schedule.text if schedule else "", due.at_ms if due else None)
