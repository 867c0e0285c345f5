"""Log starts: finds the first offsets with samples of a span, and the facts about the log that all tasks of a read
need."""

from __future__ import annotations

from collections.abc import Mapping

from tsdb.log.interface import METRICS, Log, Watermarks
from tsdb.log.meta import require_meta
from tsdb.log.records import first_records
from tsdb.model.errors import OutOfCoverage
from tsdb.model.time_set import TimeSet


def times_of(log: Log) -> TimeSet:
    """The time set of the log. Raises ConfigMismatch (meta)."""
    return require_meta(log).time_set


def first_offsets(
    log: Log, marks: Mapping[int, Watermarks], start_ms: int | None, times: TimeSet, *, allow_holes: bool = False
) -> dict[int, int]:
    """First offset of each partition with samples from start_ms on: a record's broker time is >= timestamp - ahead.

    None: the first offset of the log. Raises OutOfCoverage (before_retention) unless holes are allowed.
    """
    if start_ms is None:
        return {partition: mark.low for partition, mark in marks.items()}
    if not allow_holes:
        check_retention(log, marks, start_ms, times)
    found = log.offsets_for_times(METRICS, dict.fromkeys(marks, max(start_ms - times.ahead_ms, 0)))
    return {
        partition: mark.high if found[partition] is None else max(found[partition] or 0, mark.low)
        for partition, mark in marks.items()
    }


def check_retention(log: Log, marks: Mapping[int, Watermarks], start_ms: int, times: TimeSet) -> None:
    """Raises OutOfCoverage (before_retention) when a trimmed log may lack samples from start_ms on."""
    trimmed = {partition: mark.low for partition, mark in marks.items() if mark.low}
    for partition, record in first_records(log, METRICS, trimmed).items():
        whole_from_ms = None if record is None else record.broker_ms + 2 * times.ahead_ms
        if whole_from_ms is None or start_ms < whole_from_ms:
            raise OutOfCoverage(
                f"partition {partition} of the log is trimmed: it is whole from {whole_from_ms} ms on; requested"
                f" from {start_ms} ms: read older samples from history, or what is left here with the option"
                " allow_holes=true",
                reason="before_retention",
            )
