"""Holes: the named losses of one head. Above a bound they become one wide hole per reason, which covers them all."""

from __future__ import annotations

from itertools import groupby

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.log_record import STATUS_CORRUPT, DecodedRecords
from tsdb.head.state import Hole
from tsdb.index.series_table_kernels import NO_REF
from tsdb.model.time_set import TimeSet

CORRUPT_RECORD, UNKNOWN_SERIES = "corrupt_record", "unknown_series"


def corrupt_holes(
    records: DecodedRecords,
    first: int,
    end: int,
    offsets: NDArray[np.int64],
    broker_ms: NDArray[np.int64],
    time_set: TimeSet,
) -> list[Hole]:
    """One hole per corrupt record of [first, end), over every time that its samples may have."""
    if records.all_ok:
        return []
    return [
        Hole(
            int(broker_ms[record]) - time_set.accept_past_ms,
            int(broker_ms[record]) + time_set.ahead_ms + 1,
            CORRUPT_RECORD,
            int(offsets[record]),
        )
        for record in first + np.flatnonzero(records.status[first:end] == STATUS_CORRUPT)
    ]


def unknown_holes(
    records: DecodedRecords, first: int, end: int, refs: NDArray[np.uint32], offsets: NDArray[np.int64]
) -> list[Hole]:
    """One hole per pack with samples of unknown series in the records [first, end), over the times of those samples."""
    begin, stop = records.sample_start[first], records.sample_start[end]
    lost = begin + np.flatnonzero(refs[begin:stop] == NO_REF)
    if not len(lost):
        return []
    pack_of = np.searchsorted(np.cumsum(records.pack_length.astype(np.int64)), lost, side="right")
    packs, starts = np.unique(pack_of, return_index=True)
    earliest = np.minimum.reduceat(records.ts_ms[lost], starts)
    latest = np.maximum.reduceat(records.ts_ms[lost], starts)
    record_of = np.searchsorted(records.sample_start, lost[starts], side="right") - 1
    return [
        Hole(int(low), int(high) + 1, UNKNOWN_SERIES, int(offsets[record]), int(records.pack_id[pack]))
        for pack, record, low, high in zip(packs, record_of, earliest, latest, strict=True)
    ]


class Holes:
    """Used by the writer thread under the head's lock. `all` is an immutable snapshot."""

    def __init__(self, holes_max: int) -> None:
        self._holes_max = holes_max
        self.all: tuple[Hole, ...] = ()

    def add(self, holes: list[Hole]) -> None:
        """Add holes. Above holes_max, replace all holes by one wide hole per reason."""
        if not holes:
            return
        self.all += tuple(holes)
        if len(self.all) > self._holes_max:
            by_reason = sorted(self.all, key=lambda hole: hole.reason)
            self.all = tuple(_cover(list(group)) for _, group in groupby(by_reason, key=lambda hole: hole.reason))

    def drop(self, coverage_start_ms: int, since_offset: int) -> None:
        """Drop the holes that no read can touch: below coverage, and of records below since_offset."""
        self.all = tuple(
            hole for hole in self.all if hole.end_ms > coverage_start_ms or hole.record_offset >= since_offset
        )


def _cover(holes: list[Hole]) -> Hole:
    """One hole that covers all of these, with the highest record_offset among them."""
    return Hole(
        min(hole.start_ms for hole in holes),
        max(hole.end_ms for hole in holes),
        holes[0].reason,
        max(hole.record_offset for hole in holes),
    )
