"""Plan: check that the log has all records of a range of windows, and list the work items of the range.

It cuts a range of late minutes into stretches of similar size, each at the start of a late minute.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from spark_backfill.building.items import BaseItem, Item, LateItem
from tsdb.chunks.late_scan import Windows
from tsdb.log.interface import METRICS, Log
from tsdb.log.records import first_records, last_records
from tsdb.model.errors import InvalidRequest, LostOffsets
from tsdb.model.time_set import TimeSet
from tsdb.model.window import ceil_to, floor_to

STRETCH_RECORDS = 500_000
SHOWN = 3


@dataclass(frozen=True, slots=True)
class PartitionRange:
    """The records that the log has of one partition.

    first_base_ms: start of the first window that can have a base: windows before the log's first record never had one.
    began_ms: broker time of the first retained record. late_first, late_end: range of records that may have late
    samples of the windows; both offsets begin a late minute. late_first_ms, late_end_ms: broker times of their minutes.
    """

    partition: int
    first_base_ms: int
    began_ms: int
    late_first: int
    late_end: int
    late_first_ms: int
    late_end_ms: int


def range_of(start_ms: int, end_ms: int, window_ms: int) -> Windows:
    """Windows of [start_ms, end_ms). Raises InvalidRequest (range_empty, not_whole_windows)."""
    if end_ms <= start_ms:
        raise InvalidRequest(f"the range from {start_ms} ms to {end_ms} ms is empty", reason="range_empty")
    if start_ms % window_ms or end_ms % window_ms:
        whole = floor_to(start_ms, window_ms), ceil_to(end_ms, window_ms)
        raise InvalidRequest(
            f"from {start_ms} ms to {end_ms} ms are no whole windows of {window_ms} ms; {whole[0]} to {whole[1]} are",
            reason="not_whole_windows",
        )
    return Windows(start_ms, end_ms)


def plan_partitions(log: Log, windows: Windows, times: TimeSet) -> list[PartitionRange]:
    """The range of every partition. Raises LostOffsets (before_retention), InvalidRequest (too_recent)."""
    numbers = list(range(log.partitions(METRICS)))
    marks = log.watermarks(METRICS, numbers)
    held = [number for number in numbers if marks[number].low < marks[number].high]
    first = first_records(log, METRICS, {number: marks[number].low for number in held})
    last = last_records(log, METRICS, held)
    began = {number: record.broker_ms for number in held if (record := first[number]) is not None}
    ended = {number: record.broker_ms for number in held if (record := last[number]) is not None}
    _check_retained({n: ms for n, ms in began.items() if marks[n].low}, windows, times)
    _check_closed(numbers, ended, windows, times)
    closes_ms = floor_to(windows.start_ms + times.window_ms + times.grace_ms, times.late_minute_ms)
    late_end_ms = {number: floor_to(ended[number], times.late_minute_ms) for number in numbers}
    # One request for all partitions: with one for each, the waits would add up.
    late_first = _first_at(log, dict.fromkeys(numbers, closes_ms))
    late_end = _first_at(log, late_end_ms)
    return [
        PartitionRange(
            number,
            floor_to(began[number] - times.grace_ms, times.window_ms),
            began[number],
            late_first[number],
            max(late_first[number], late_end[number]),
            closes_ms,
            late_end_ms[number],
        )
        for number in numbers
    ]


def items_of(log: Log, found: Sequence[PartitionRange], windows: Windows, times: TimeSet) -> Iterator[Item]:
    """One item for each window, then stretches of late minutes: windows take longest, so they come first."""
    for one in found:
        for start_ms in range(max(windows.start_ms, one.first_base_ms), windows.end_ms, times.window_ms):
            yield BaseItem(one.partition, start_ms, start_ms + times.window_ms, again=True)
    for one in found:
        for first, end in stretches(
            log,
            one.partition,
            one.late_first,
            one.late_end,
            one.late_first_ms,
            one.late_end_ms,
            times.late_minute_ms,
            STRETCH_RECORDS,
        ):
            yield LateItem(one.partition, first, end, windows)


def whole_from_ms(began_ms: int, times: TimeSet) -> int:
    """Start of the first window that a partition has whole after a trim, from the broker time of its first record:
    broker times step back by at most `ahead`."""
    return ceil_to(began_ms + 2 * times.ahead_ms, times.window_ms)


def first_whole_ms(log: Log, times: TimeSet) -> int:
    """Start of the first window that a trimmed log has whole in all partitions; 0 for a log that was never trimmed.

    A partition that was trimmed whole has no first record, so it counts as one without samples.
    """
    marks = log.watermarks(METRICS, range(log.partitions(METRICS)))
    trimmed = {number: each.low for number, each in marks.items() if 0 < each.low < each.high}
    first = first_records(log, METRICS, trimmed)
    return max((whole_from_ms(one.broker_ms, times) for one in first.values() if one is not None), default=0)


def _first_at(log: Log, times_ms: dict[int, int]) -> dict[int, int]:
    """`first_at` of each partition. The record exists, because the windows are closed and the last record was found."""
    found = {number: first for number, first in log.offsets_for_times(METRICS, times_ms).items() if first is not None}
    assert len(found) == len(times_ms), f"no record at {times_ms} in all but {sorted(found)}"
    return found


def _check_retained(began: dict[int, int], windows: Windows, times: TimeSet) -> None:
    """Refuse windows that a trimmed log no longer has whole."""
    whole = {number: whole_from_ms(ms, times) for number, ms in began.items()}
    short = {number: ms for number, ms in whole.items() if ms > windows.start_ms}
    if short:
        raise LostOffsets(
            f"the log does not reach back to {windows.start_ms} ms in {len(short)} partition(s): whole are windows from"
            f" {max(short.values())} ms on ({_shown(short)})",
            reason="before_retention",
        )


def _check_closed(numbers: Sequence[int], ended: dict[int, int], windows: Windows, times: TimeSet) -> None:
    closed = {
        number: floor_to(ended[number] - times.grace_ms, times.window_ms) if number in ended else 0
        for number in numbers
    }
    short = {number: ms for number, ms in closed.items() if ms < windows.end_ms}
    if short:
        raise InvalidRequest(
            f"windows up to {windows.end_ms} ms are too recent in {len(short)} partition(s): closed are those that end"
            f" by {min(short.values())} ms ({_shown(short)})",
            reason="too_recent",
        )


def _shown(of: dict[int, int]) -> str:
    return ", ".join(f"partition {number}: {ms}" for number, ms in sorted(of.items())[:SHOWN])


def first_offset_at(log: Log, partition: int, time_ms: int) -> int | None:
    """Offset of the first record with broker time `time_ms` or later; None when there is no such record yet.

    With a multiple of the late minute's length as `time_ms`, the record begins a late minute.
    """
    return log.offsets_for_times(METRICS, {partition: time_ms})[partition]


def broker_ms_at(log: Log, offsets: Mapping[int, int]) -> dict[int, int]:
    """The broker time of the first record at or after an offset, by partition. Raises LostOffsets (chunk_gap) when such
    a record does not exist.
    """
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
