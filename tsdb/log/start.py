"""Start: where the replay of a partition begins, and from which sample time on it will be complete.

`resolve_start` is pure. Its inputs must be taken in the order that `find_start` takes them: the high watermark first.
Then whatever is appended meanwhile lies at or above it, and no answer of the log can turn into a seek past records.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from tsdb.log.interface import Log
from tsdb.log.records import first_records, last_records
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.time_set import TimeSet

TRIES = 5  # Each lost to a log trimmed between two questions.


class StartCase(Enum):
    """What the log looked like."""

    HIT = "the log reaches back beyond the horizon"
    EMPTY = "nothing was ever written"
    ALL_OLDER = "every record is older than the horizon"
    SHORTER = "the log, never trimmed, begins after the horizon"
    TRIMMED_SHORTER = "the log was trimmed to begin after the horizon"
    TRIMMED_ALL = "everything written was trimmed"


@dataclass(frozen=True, slots=True)
class Start:
    """offset: the first to read. coverage_start_ms: sample time from which on the head will be complete.

    from_start: the replay sees everything ever written. horizon_ms: broker time from which on records are read.
    """

    case: StartCase
    offset: int
    coverage_start_ms: int
    from_start: bool
    horizon_ms: int


@dataclass(frozen=True, slots=True)
class LogEnds:
    """What was asked of one partition, in this order.

    high: high watermark. tail_broker_ms: broker time of the last record, None: nothing readable. lookup_offset: of the
    horizon, None: no record at or after it. low: low watermark. first_broker_ms: broker time of the first record, None:
    nothing readable.
    """

    high: int
    tail_broker_ms: int | None
    lookup_offset: int | None
    low: int
    first_broker_ms: int | None


def horizon(tail_broker_ms: int | None, now_ms: int, hold_ms: int) -> int:
    """H: hold before now, or before the last record where the log rests longer: an idle log keeps its last hours."""
    return (now_ms if tail_broker_ms is None else min(now_ms, tail_broker_ms)) - hold_ms


def resolve_start(ends: LogEnds, *, horizon_ms: int, ahead_ms: int, now_ms: int) -> Start:
    """Where to begin. A sample at t that counts has broker time >= t - ahead, so C = H + ahead is exact.

    Of a trimmed log nothing is known before its first record, and broker times may step back by no more than ahead:
    hence first_broker_ms + 2 x ahead. All times in ms UTC.
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
        # Not the end as it is now: what came after the high watermark was taken must be read.
        return Start(StartCase.ALL_OLDER, max(ends.low, ends.high), coverage_ms, False, horizon_ms)
    offset = max(ends.low, ends.lookup_offset)
    if offset > ends.low:
        return Start(StartCase.HIT, offset, coverage_ms, False, horizon_ms)
    case = StartCase.SHORTER if whole else StartCase.TRIMMED_SHORTER
    return Start(case, offset, coverage_ms, whole, horizon_ms)


def find_start(
    log: Log, topic: str, partitions: Sequence[int], *, now_ms: int, hold_ms: int, time_set: TimeSet
) -> dict[int, Start]:
    """Ask the log and resolve, for many partitions at once. Raises Unavailable, also for a log that keeps being trimmed
    under the questions."""
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
