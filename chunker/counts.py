"""Counts: metrics of the chunk stage's output, counted when an emission is finished."""

from __future__ import annotations

from tsdb.chunks.stage import Emission
from tsdb.ops.metrics import counter

late_samples_total = counter(
    "tsdb_chunks_late_samples_total", "Samples emitted late: they arrived after their window had closed."
)
windows_total = counter(
    "tsdb_chunks_windows_total",
    "Windows finished, by result.",
    label="result",
    values=("emitted", "empty", "not_whole"),
)
chunks_total = counter(
    "tsdb_chunks_emitted_total", "Chunk records made, by kind.", label="kind", values=("base", "late")
)
chunk_bytes_total = counter("tsdb_chunks_emitted_bytes_total", "Bytes of chunk records made, keys included.")
holes_total = counter("tsdb_chunks_holes_total", "Losses found in the log and written as holes.")


def count(emission: Emission) -> None:
    """Count one finished emission."""
    holes_total.inc(emission.holes)
    if emission.minutes or emission.base is not None:
        chunks_total.labels("late" if emission.minutes else "base").inc(len(emission.records))
        chunk_bytes_total.inc(sum(record.size for record in emission.records))
    if emission.minutes:
        late_samples_total.inc(emission.samples)
    windows_total.labels("not_whole").inc(emission.not_whole)
    windows_total.labels("empty").inc(emission.empty)
    windows_total.labels("emitted").inc(emission.windows - emission.not_whole - emission.empty)
