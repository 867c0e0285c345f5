"""Stretches: cuts a range of late minutes into pieces of similar size, each at the start of a late minute."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

from tsdb.log.interface import METRICS, Log
from tsdb.log.records import first_records
from tsdb.model.errors import LostOffsets
from tsdb.model.window import floor_to


def first_offset_at(log: Log, partition: int, time_ms: int) -> int | None:
    """Offset of the first record with broker time `time_ms` or later; None when there is no such record yet.

    With a multiple of the late minute's length as `time_ms`, the record begins a late minute.
    """
    return log.offsets_for_times(METRICS, {partition: time_ms})[partition]


def broker_ms_at(log: Log, offsets: Mapping[int, int]) -> dict[int, int]:
    """By partition, the broker time of the first record at or after an offset. Raises LostOffsets (chunk_gap) when such
    a record does not exist."""
    found: dict[int, int] = {}
    for partition, record in first_records(log, METRICS, offsets).items():
        if record is None:
            offset = offsets[partition]
            raise LostOffsets(
                f"partition {partition} has no record at or after offset {offset}",
                reason="chunk_gap",
                partition=partition,
            )
        found[partition] = record.broker_ms
    return found


def stretches(
    log: Log, partition: int, first: int, end: int, begin_ms: int, end_ms: int, minute_ms: int, records: int
) -> list[tuple[int, int]]:
    """Cut [first, end) into stretches of about `records` records, equal in time.

    first, end: offsets that begin a late minute. begin_ms, end_ms: broker times at which these minutes begin, or times
    a little before.

    """
    if end <= first:
        return []
    pieces = -(-(end - first) // records)
    cuts = {first, end}
    for piece in range(1, pieces):
        at = first_offset_at(log, partition, floor_to(begin_ms + (end_ms - begin_ms) * piece // pieces, minute_ms))
        cuts.add(min(max(first if at is None else at, first), end))
    return list(pairwise(sorted(cuts)))
