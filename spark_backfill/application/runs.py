"""Runs: the records of a kind's runs, and the changes by a begin and an end. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

MERGE_LATE, DOWNSAMPLE, VERIFY = KINDS = ("merge-late", "downsample", "verify")

RUNS_MAX = 10  # The newest runs of a kind that are kept.
FIGURES_MAX = 32
TEXT_MAX = 500  # Most characters of an error's text.


class RunResult(Enum):
    """How a run ended."""

    OK = "ok"
    FINDINGS = "findings"
    """The job did its work and found something that needs an operator. It is not repeated before its next due time."""
    FAILED = "failed"
    """The job did not do its work. It is repeated after a delay."""
    STOPPED = "stopped"
    """The application ended first. The next application runs the job at once."""


class Cause(Enum):
    """Cause of a run."""

    SCHEDULE = "schedule"
    RETRY = "retry"
    REQUEST = "request"


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """End of a run. reason, text: describe the error. figures: counts from the job's summary, integers only."""

    result: RunResult
    reason: str = ""
    text: str = ""
    figures: Mapping[str, int] = field(default_factory=dict)

    def bounded(self) -> RunOutcome:
        """At most FIGURES_MAX figures and TEXT_MAX characters, so that a record stays small."""
        figures = dict(list(self.figures.items())[:FIGURES_MAX])
        return replace(self, text=self.text[:TEXT_MAX], figures=figures)


@dataclass(frozen=True, slots=True)
class JobRun:
    """One run. end_ms, outcome: None while it runs. Times are by the application's clock, ms since the epoch."""

    begin_ms: int
    cause: Cause
    end_ms: int | None = None
    outcome: RunOutcome | None = None

    @property
    def took_ms(self) -> int | None:
        return None if self.end_ms is None else self.end_ms - self.begin_ms


@dataclass(frozen=True, slots=True)
class JobRuns:
    """Runs of one kind. since_ms: time at which an application first had the kind. runs: oldest first, RUNS_MAX at
    most.

    last_ok: the last run with result ok, also when it is no longer among `runs`. failures: failed runs in a row.
    requests_done: requests in `meta` below this offset are answered.
    """

    since_ms: int
    runs: tuple[JobRun, ...] = ()
    last_ok: JobRun | None = None
    failures: int = 0
    requests_done: int = 0

    @property
    def last(self) -> JobRun | None:
        return self.runs[-1] if self.runs else None

    @property
    def is_running(self) -> bool:
        return self.last is not None and self.last.end_ms is None

    def begun(self, at_ms: int, cause: Cause, requests_done: int) -> JobRuns:
        """The runs with one more, which also answers the requests below an offset."""
        assert not self.is_running, "a kind has one run at a time"
        runs = (*self.runs, JobRun(at_ms, cause))[-RUNS_MAX:]
        return replace(self, runs=runs, requests_done=max(requests_done, self.requests_done))

    def ended(self, at_ms: int, outcome: RunOutcome) -> JobRuns:
        """With the end of the run that runs."""
        assert self.is_running, "only a run can end"
        done = replace(self.runs[-1], end_ms=max(at_ms, self.runs[-1].begin_ms), outcome=outcome.bounded())
        return replace(
            self,
            runs=(*self.runs[:-1], done),
            last_ok=done if outcome.result is RunResult.OK else self.last_ok,
            failures=self._failures_after(outcome.result),
        )

    def _failures_after(self, result: RunResult) -> int:
        if result is RunResult.FAILED:
            return self.failures + 1
        return self.failures if result is RunResult.STOPPED else 0


@dataclass(frozen=True, slots=True)
class JobState:
    """The record of one kind of job in `meta`. runs: None before the first application.

    paused: only a request begins a run. switched_ms: time of the last pause or resume. requested: one past the offset
    of the newest request in `meta`; 0: no request.
    """

    runs: JobRuns | None = None
    paused: bool = False
    switched_ms: int = 0
    requested: int = 0
