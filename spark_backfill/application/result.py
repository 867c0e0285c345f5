"""Results that an application and its verifications report at their end."""

from __future__ import annotations

from dataclasses import dataclass

from spark_backfill.pipeline.result import PipelineResult
from spark_backfill.result import JobResult, VerifyResult


@dataclass(frozen=True, slots=True)
class KindRuns:
    """Runs of one kind of job that ended in this application, by result."""

    kind: str
    ok: int
    findings: int
    failed: int
    stopped: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplicationResult(PipelineResult):
    """The figures are those of the stream. rows: the runs of jobs, a row for each kind."""

    job: str = "run"
    rows: tuple[KindRuns, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerResult(JobResult):
    """rows: the runs of jobs, a row for each kind."""

    job: str = "scheduler"
    rows: tuple[KindRuns, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWindowsResult(VerifyResult):
    """to_ms: time from which the next run continues. windows_unverified: windows since the last ok run that the log no
    longer holds. windows_left: due windows that the next run verifies.
    """

    windows_unverified: int
    windows_left: int
