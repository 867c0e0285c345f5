"""Result of an import."""

from __future__ import annotations

from dataclasses import dataclass

from spark_backfill.result import JobResult


@dataclass(frozen=True, slots=True)
class RefusedCount:
    """Number of input rows that were refused for one reason; docs/spark/jobs.md lists the reasons."""

    reason: str
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportResult(JobResult):
    """An import. ok: no row was refused, or refused rows were allowed. rows: refused rows by reason.

    job_id: names the input; another run with it writes the same keys. rows_valid: input rows that were not refused.
    samples: samples written. chunks: parts of
    chunks, of `bytes` in all. duplicates, conflicts: rows that were left out for another row of the same series and
    time, with the same value or another. announced: series announced. rejected: rows refused. rejects: folder of the
    refused rows; None without one. end_ms: samples at or after it are too recent. loaded: the samples are in history.
    """

    job: str = "import"
    rows: tuple[RefusedCount, ...] = ()
    job_id: str
    rows_valid: int
    samples: int
    chunks: int
    bytes: int
    duplicates: int
    conflicts: int
    announced: int
    rejected: int
    rejects: str | None
    end_ms: int
    loaded: bool
