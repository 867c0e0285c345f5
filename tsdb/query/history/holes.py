"""History holes: finds the holes of history that touch one answer, without accepted ones.

A hole of a lost chunk names a pack whose series the index has: only reads of that pack miss samples. A hole of an
unknown series names a pack too, but no index has the series, so no selection shows whether a reader asked for it: every
read of the partition in its range may miss samples.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from tsdb.answer.state import MemoryState
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.head.holes import UNKNOWN_SERIES
from tsdb.history.interface import HistoryReads, HistoryRow
from tsdb.model.errors import CorruptData, HoleInRange

CORRUPT_CHUNK = "corrupt_chunk"


@dataclass(slots=True)
class HistoryHoles:
    """Holes that are not accepted, by partition."""

    allowed: bool
    holes: dict[int, list[HoleRecord]] = field(default_factory=dict)

    @classmethod
    def read(cls, history: HistoryReads, start_ms: int, seams: Mapping[int, int], *, allowed: bool) -> HistoryHoles:
        """Holes in [start_ms, seam) of each partition."""
        found = cls(allowed)
        if not seams:
            return found
        for one in history.holes(list(seams), start_ms, max(seams.values())):
            if not one.accepted and one.hole.start_ms < seams[one.hole.partition]:
                found.holes.setdefault(one.hole.partition, []).append(one.hole)
        return found

    def check(self, partition: int, pack_ids: Collection[int] = ()) -> None:
        """Raises HoleInRange for a hole that may hide samples of any series, or of these packs, unless holes are
        allowed."""
        if self.allowed:
            return
        for hole in self.holes.get(partition, ()):
            if not _is_of_known_series(hole) or hole.pack_id in pack_ids:
                raise _error(hole)

    def add_corrupt(self, partition: int, window_ms: int, row: HistoryRow, error: CorruptData) -> None:
        """A chunk that does not decode is a hole of its pack and window. Raises the error unless holes are allowed."""
        key = row.key
        if not self.allowed:
            raise CorruptData(
                f"pack {key.pack_id:016x}, window {key.window_start_ms} ms of partition {partition}: {error.message};"
                " allow_holes answers without it",
                reason=CORRUPT_CHUNK,
                partition=partition,
                pack_id=f"{key.pack_id:016x}",
                window_start_ms=key.window_start_ms,
                kind=key.kind.name.lower(),
                order=key.order,
                part=key.part,
            ) from error
        end_ms = key.window_start_ms + window_ms
        hole = HoleRecord(partition, key.pack_id, key.window_start_ms, end_ms, CORRUPT_CHUNK, key.order)
        self.holes.setdefault(partition, []).append(hole)

    def list_in(self, states: dict[int, MemoryState]) -> None:
        """Add the holes to the states of an answer."""
        for partition, holes in self.holes.items():
            states[partition] = replace(states[partition], holes=(*states[partition].holes, *holes))


def _is_of_known_series(hole: HoleRecord) -> bool:
    """Whether the index has every series that lost samples in the hole: they are those of its pack."""
    return bool(hole.pack_id) and hole.reason != UNKNOWN_SERIES


def _error(hole: HoleRecord) -> HoleInRange:
    where = f"pack {hole.pack_id:016x} of partition {hole.partition}" if hole.pack_id else f"partition {hole.partition}"
    return HoleInRange(
        f"samples of {where} in [{hole.start_ms}, {hole.end_ms}) may be lost to history: {hole.reason},"
        f" record_offset {hole.record_offset}; allow_holes answers without them",
        partition=hole.partition,
        hole_reason=hole.reason,
        hole_start_ms=hole.start_ms,
        hole_end_ms=hole.end_ms,
    )
