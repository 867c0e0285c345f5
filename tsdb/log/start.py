"""Start: the first offset of a partition's replay, and the sample time from which its head will be complete.

`resolve_start` is pure. Its inputs must be read in the order of `find_start`: the high watermark first. Records
appended meanwhile then lie at or above it, and no answer of the log can lead to a seek past records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tsdb.log.interface import Log
from tsdb.log.records import first_records, last_records
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.time_set import TimeSet

TRIES = 5  # A try fails if the log is trimmed between two requests.


class StartCase(Enum):
    """State of the log at the start."""

    HIT = "the log reaches back beyond the horizon"
    EMPTY = "nothing was ever written"
    ALL_OLDER = "every record is older than the horizon"
    SHORTER = "the log, never trimmed, begins after the horizon"
    TRIMMED_SHORTER = "the log was trimmed to begin after the horizon"
    TRIMMED_ALL = "everything written was trimmed"


@dataclass(frozen=True, slots=True)
class Start:
    """Start of a replay. offset: first offset to read. coverage_start_ms: the head will be complete from this sample
    time on.

    from_start: the replay reads every record ever written. horizon_ms: records are read from this broker time on.

    """

    case: StartCase
    offset: int
    coverage_start_ms: int
    from_start: bool
    horizon_ms: int


@dataclass(frozen=True, slots=True)
class LogEnds:
    """Answers of the log for one partition, requested in this order.

    high: high watermark. tail_broker_ms: broker time of the last record, None: nothing readable. lookup_offset: first
    offset at or after the horizon, None: no such record. low: low watermark. first_broker_ms: broker time of the first
    record, None: nothing readable.
    """

    high: int
    tail_broker_ms: int | None
    lookup_offset: int | None
    low: int
    first_broker_ms: int | None


def horizon(tail_broker_ms: int | None, now_ms: int, hold_ms: int) -> int:
    """H: the hold before now, or before the last record if that is older, so that an idle log keeps its last hours."""
    return (now_ms if tail_broker_ms is None else min(now_ms, tail_broker_ms)) - hold_ms


def resolve_start(ends: LogEnds, *, horizon_ms: int, ahead_ms: int, now_ms: int) -> Start:
    """The start of a replay. A sample at t that counts has broker time >= t - ahead, so C = H + ahead is exact.

    A trimmed log has lost everything before its first record, and broker times may step back by at most ahead: hence
    first_broker_ms + 2 x ahead. All times in ms UTC.
    """
    whole = ends.low == 0
    coverage_ms = horizon_ms + ahead_ms
    if ends.first_broker_ms is None or ends.tail_broker_ms is None:
        if ends.low == 0 and ends.high == 0:
            return Start(StartCase.EMPTY, 0, coverage_ms, True, horizon_ms)
        return Start(StartCase.TRIMMED_ALL, max(ends.low, ends.high), now_ms + ahead_ms, False, horizon_ms)
    if not whole:
        coverage_ms = max(coverage_ms, ends.first_broker_ms + 2 * ahead_ms)
    if ends.lookup_offset is None:
        # The high watermark and not the current end, because records that were appended since must be replayed.
        return Start(StartCase.ALL_OLDER, max(ends.low, ends.high), coverage_ms, False, horizon_ms)
    offset = max(ends.low, ends.lookup_offset)
    if offset > ends.low:
        return Start(StartCase.HIT, offset, coverage_ms, False, horizon_ms)
    case = StartCase.SHORTER if whole else StartCase.TRIMMED_SHORTER
    return Start(case, offset, coverage_ms, whole, horizon_ms)


def find_start(
    log: Log, topic: str, partitions: Sequence[int], *, now_ms: int, hold_ms: int, time_set: TimeSet
) -> dict[int, Start]:
    """Starts of many partitions, from requests to the log. Raises Unavailable, also if the log is trimmed during every
    try."""
    for _ in range(TRIES):
        highs = log.watermarks(topic, partitions)
        tails = last_records(log, topic, partitions)
        horizons = {p: horizon(tail.broker_ms if (tail := tails[p]) else None, now_ms, hold_ms) for p in partitions}
        lookups = log.offsets_for_times(topic, horizons)
        lows = log.watermarks(topic, partitions)
        try:
            firsts = first_records(log, topic, {p: lows[p].low for p in partitions if lows[p].low < lows[p].high})
        except LostOffsets:
            continue
        starts = {}
        for partition in partitions:
            first, tail = firsts.get(partition), tails[partition]
            ends = LogEnds(
                highs[partition].high,
                tail.broker_ms if tail else None,
                lookups[partition],
                lows[partition].low,
                first.broker_ms if first else None,
            )
            starts[partition] = resolve_start(
                ends, horizon_ms=horizons[partition], ahead_ms=time_set.ahead_ms, now_ms=now_ms
            )
        return starts
    raise Unavailable(f"topic {topic} is trimmed faster than its start can be found", reason="log_unavailable")
