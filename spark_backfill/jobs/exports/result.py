"""Result of an export."""

from __future__ import annotations

from dataclasses import dataclass

from spark_backfill.result import JobResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult(JobResult):
    """folder: as given. samples: rows written. start_ms, end_ms: range of sample times, [start_ms, end_ms); None: no
    bound."""

    job: str = "export"
    folder: str
    samples: int
    start_ms: int | None
    end_ms: int | None
