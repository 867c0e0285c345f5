"""Result of a downsampling."""

from __future__ import annotations

from dataclasses import dataclass

from spark_backfill.result import JobResult


@dataclass(frozen=True, slots=True, kw_only=True)
class DownsampleResult(JobResult):
    """ok: no window was refused. start_ms, end_ms: the span of windows that were checked, [start_ms, end_ms).

    packs: packs with data in the span. windows: their windows; windows_stale: windows to derive, new or with newer
    samples. samples_derived, chunks_written: 0 in a dry run. windows_refused: windows with a corrupt chunk.
    """

    job: str = "downsample"
    dry_run: bool
    start_ms: int
    end_ms: int
    packs: int
    windows: int
    windows_stale: int
    samples_derived: int
    chunks_written: int
    windows_refused: int
