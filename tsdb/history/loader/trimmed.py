"""Trimmed topics: holes for the records that a start from zero can no longer load."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from tsdb.codec.chunk.marker import HoleRecord
from tsdb.log.interface import CHUNKS, SERIES, Log, TopicPartition
from tsdb.log.records import first_records
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.time_set import TimeSet

CHUNKS_TRIMMED, SERIES_TRIMMED = "chunks_trimmed", "series_trimmed"
LONG_AGO_MS = -(1 << 60)  # A time before any sample.


def trimmed_holes(
    log: Log,
    partitions: Collection[int],
    times: TimeSet,
    now_ms: int,
    restored: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[int, list[HoleRecord]]:
    """Holes by partition. restored: offsets below which history has all records already. Raises Unavailable.

    All samples of a chunk are older than its record's broker time, so trimmed chunks hold only samples from before the
    first retained record. A series is announced at most a window before each of its samples.
    """
    longest = ((CHUNKS, CHUNKS_TRIMMED, 0), (SERIES, SERIES_TRIMMED, times.window_ms + times.ahead_ms))
    holes: dict[int, list[HoleRecord]] = {}
    for topic, reason, after_ms in longest:
        for partition, (low, first_ms) in _trimmed(log, topic, partitions, restored).items():
            # A topic that was trimmed completely has no record with a time.
            end_ms = (now_ms if first_ms is None else first_ms) + after_ms
            holes.setdefault(partition, []).append(HoleRecord(partition, 0, LONG_AGO_MS, end_ms, reason, low))
    return holes


def _trimmed(
    log: Log, topic: str, partitions: Collection[int], restored: Mapping[TopicPartition, int]
) -> dict[int, tuple[int, int | None]]:
    """(low watermark, broker time of the first record) of each partition that is trimmed above what was restored."""
    found = log.watermarks(topic, sorted(partitions))
    marks = {number: mark for number, mark in found.items() if mark.low > restored.get((topic, number), 0)}
    try:
        firsts = first_records(log, topic, {number: mark.low for number, mark in marks.items() if mark.low < mark.high})
    except LostOffsets as error:
        raise Unavailable(f"topic {topic} is being trimmed: {error.message}", reason="log_unavailable") from error
    return {
        number: (mark.low, first.broker_ms if (first := firsts.get(number)) else None) for number, mark in marks.items()
    }
