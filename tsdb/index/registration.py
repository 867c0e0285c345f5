"""Registration: adds announcements to table, rows and labels, a batch at a time under the index's lock."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.index.index_kernels import (
    TALLY_CONFLICT_AT,
    TALLY_CONFLICTS,
    TALLY_MALFORMED,
    TALLY_NEW,
    TALLY_REPEATED,
    TALLY_SIZE,
    register_kernel,
)
from tsdb.index.label_index import LabelIndex
from tsdb.index.series_rows import SeriesRows
from tsdb.index.series_table import SeriesIdTable


@dataclass(slots=True)
class Registered:
    """Counts of announcements by result. repeated: already known. conflicts, malformed: refused.

    conflict_at: index of one of the conflicts among the announcements.
    """

    new: int = 0
    repeated: int = 0
    conflicts: int = 0
    malformed: int = 0
    conflict_at: int | None = None


def register(
    records: DecodedAnnouncements,
    part: slice,
    data: NDArray[np.uint8],
    broker_ms: NDArray[np.int64],
    table: SeriesIdTable,
    rows: SeriesRows,
    labels: LabelIndex,
    done: Registered,
) -> int:
    """Register records[part], whose labels are in data. Adds to `done`; returns the number of new series."""
    status, starts, ends = records.status[part], records.label_start[part], records.label_end[part]
    table.reserve(len(status))
    labels.arena.reserve_refs(rows.reserve(len(status)))
    tally, new_refs = np.zeros(TALLY_SIZE, np.int64), np.empty(len(status), np.uint32)
    first = 0
    while True:
        first = register_kernel(
            status,
            records.series_id[part],
            records.pack_id[part],
            starts,
            ends,
            broker_ms[part],
            data,
            *table.arrays,
            table.used,
            rows.columns,
            rows.free,
            labels.arena.labels,
            first,
            tally,
            new_refs,
        )
        if first == len(status):
            break
        labels.arena.reserve_for(data[starts[first] : ends[first]].tobytes())
    new = int(tally[TALLY_NEW])
    table.inserted(new)
    labels.add(new_refs[:new])
    _count(tally, part, done)
    return new


def _count(tally: NDArray[np.int64], part: slice, done: Registered) -> None:
    done.new += int(tally[TALLY_NEW])
    done.repeated += int(tally[TALLY_REPEATED])
    done.malformed += int(tally[TALLY_MALFORMED])
    done.conflicts += int(tally[TALLY_CONFLICTS])
    if tally[TALLY_CONFLICTS]:
        done.conflict_at = int(part.start + tally[TALLY_CONFLICT_AT])
