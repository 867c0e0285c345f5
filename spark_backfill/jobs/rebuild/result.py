"""Result of a rebuild."""

from __future__ import annotations

from dataclasses import dataclass

from spark_backfill.result import JobResult


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuildResult(JobResult):
    """from_ms, to_ms: the windows that were built, [from_ms, to_ms). items: tasks of the job.

    base_chunks, late_chunks: chunks written. windows: window markers written; 0 with selected packs. bytes: keys and
    values of all records written.
    """

    job: str = "rebuild"
    from_ms: int
    to_ms: int
    items: int
    base_chunks: int
    late_chunks: int
    windows: int
    bytes: int
