"""Result of a pipeline that ended."""

from __future__ import annotations

from dataclasses import dataclass

from spark_backfill.result import JobResult


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineResult(JobResult):
    """batches: batches with work. items: windows and stretches of late minutes that were processed.

    base_chunks, late_chunks: chunks written. windows: window markers written; empty_windows: markers of windows without
    a sample. holes: losses written. samples, late_samples: samples in the base chunks and in the late chunks. bytes:
    keys and values. appends: records sent; append_failures: failed appends, which were repeated. records_read,
    announcements_read: records read from the log.
    """

    job: str = "pipeline"
    batches: int
    items: int
    base_chunks: int
    late_chunks: int
    windows: int
    empty_windows: int
    holes: int
    samples: int
    late_samples: int
    bytes: int
    appends: int
    append_failures: int
    records_read: int
    announcements_read: int
