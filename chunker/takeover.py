"""Take-over: reads from the log where the chunk stage of a partition begins. The rules are in tsdb.chunks.resume."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tsdb.chunks.progress import Progress, decode_commit
from tsdb.chunks.resume import LogFacts, check_gap, first_progress, progress_of, required_ms, seek_offset
from tsdb.codec.chunk.key import ProgressKey, encode_key
from tsdb.codec.chunk.marker import HoleRecord, ProgressMarker, decode_progress_marker
from tsdb.codec.records.log_record import encode_tick
from tsdb.log.interface import CHUNKS, METRICS, SERIES, Log, Position
from tsdb.log.records import first_records, read_batches
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.time_set import TimeSet

SERIES_WINDOWS_BACK = 2  # A gateway announces a series at least once in this many windows.
TRIES = 5  # A try fails when the log is trimmed between two of its requests.


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Start of a partition's stage. next_offset: first record to read. series_offset: first announcement to read. case:
    commit, marker or first. hole: the loss of a trimmed log."""

    case: str
    topic_id: str
    progress: Progress
    next_offset: int
    series_offset: int
    hole: HoleRecord | None = None


def take_over(log: Log, partition: int, commit: Position | None, times: TimeSet, clock: Clock) -> TakeOver:
    """Raises LostOffsets (chunk_gap, offset_above_end), UnknownVersion, CorruptData and WrongTopic as decode_commit,
    Unavailable."""
    for _ in range(TRIES):
        try:
            return _take_over(log, partition, commit, times, clock)
        except LostOffsets as error:
            if error.reason != "below_low_watermark":
                raise
    raise Unavailable(f"partition {partition} is trimmed faster than its start can be found", reason="log_unavailable")


def log_facts(log: Log, partition: int, progress: Progress, times: TimeSet) -> LogFacts:
    """Read the facts that the rules need about one partition."""
    marks = log.watermarks(METRICS, [partition])[partition]
    first = first_records(log, METRICS, {partition: marks.low})[partition] if marks.low < marks.high else None
    required = log.offsets_for_times(METRICS, {partition: required_ms(progress, times)})[partition]
    return LogFacts(marks.low, marks.high, first.broker_ms if first else None, required)


def highest_marker(log: Log, partition: int, topic_id: str) -> ProgressMarker | None:
    """The highest numbers of all progress markers of this log in a partition of `chunks`. Reads the whole partition.

    The newest marker is not enough: a chunk stage that lost the partition may have written a lower marker after its
    successor. The marker of the highest position is not enough either: late samples and windows advance separately, and
    each of two stages may be ahead in one of them.
    """
    found: ProgressMarker | None = None
    key = encode_key(ProgressKey())
    for batch in read_batches(log, CHUNKS, partition):
        for index in np.flatnonzero(np.diff(batch.key_starts) == len(key)).tolist():
            record = batch.record(index)
            if record.key == key and record.value is not None:
                marker = decode_progress_marker(record.value)
                if marker.topic_id == topic_id:
                    found = marker if found is None else together(found, marker)
    return found


def together(one: ProgressMarker, other: ProgressMarker) -> ProgressMarker:
    """Join two markers: each field gets the higher value. Each field of a marker is true of `chunks` alone, so the
    result is true."""
    return ProgressMarker(
        one.topic_id,
        max(one.position, other.position),
        max(one.emitted_through_ms, other.emitted_through_ms),
        max(one.series_end_offset, other.series_end_offset),
        max(one.whole_from_ms, other.whole_from_ms),
    )


def known_progress(log: Log, partition: int, commit: Position | None) -> tuple[str, Progress | None]:
    """(case, progress) from the commit, else from all progress markers together, else ("first", None). Raises as
    decode_commit."""
    topic_id = log.topic_id(METRICS)
    if commit is not None:
        return "commit", decode_commit(commit.next_offset, commit.metadata, topic_id)
    marker = highest_marker(log, partition, topic_id)
    return ("first", None) if marker is None else ("marker", progress_of(marker))


def check_end(progress: Progress, facts: LogFacts, partition: int) -> None:
    """Raises LostOffsets (offset_above_end) when the log ends before the committed position."""
    if progress.position > facts.high:
        raise LostOffsets(
            f"the chunk stage of partition {partition} is at offset {progress.position}; the log ends at {facts.high};"
            " `tsdb chunks resume --accept-replay` starts from the last progress marker instead",
            reason="offset_above_end",
            partition=partition,
        )


def ensure_not_empty(log: Log, partition: int, clock: Clock) -> None:
    """Append a tick to a partition without records. Windows begin at the broker time of the first record.

    The offsets from the low to the high watermark may all belong to no record, after a trim.
    """
    marks = log.watermarks(METRICS, [partition])[partition]
    if marks.low == marks.high or first_records(log, METRICS, {partition: marks.low})[partition] is None:
        log.append_sync(METRICS, partition, encode_tick(), timestamp_ms=clock.now_ms())


def series_offset(log: Log, partition: int, next_offset: int, times: TimeSet, clock: Clock) -> int:
    """First announcement to read for the records from next_offset on, two windows before: each of their series was
    announced at least once since."""
    high = log.watermarks(METRICS, [partition])[partition].high
    record = first_records(log, METRICS, {partition: next_offset})[partition] if next_offset < high else None
    since_ms = (clock.now_ms() if record is None else record.broker_ms) - SERIES_WINDOWS_BACK * times.window_ms
    found = log.offsets_for_times(SERIES, {partition: since_ms})[partition]
    return log.watermarks(SERIES, [partition])[partition].high if found is None else found


def _take_over(log: Log, partition: int, commit: Position | None, times: TimeSet, clock: Clock) -> TakeOver:
    hole: HoleRecord | None = None
    case, progress = known_progress(log, partition, commit)
    if progress is None:
        progress, hole = _first(log, partition, times, clock)
    facts = log_facts(log, partition, progress, times)
    check_end(progress, facts, partition)
    if case != "first":
        hole = check_gap(progress, facts, partition, times)
    next_offset = seek_offset(progress, facts)
    announced = series_offset(log, partition, next_offset, times, clock)
    return TakeOver(case, log.topic_id(METRICS), progress, next_offset, announced, hole)


def _first(log: Log, partition: int, times: TimeSet, clock: Clock) -> tuple[Progress, HoleRecord | None]:
    ensure_not_empty(log, partition, clock)
    low = log.watermarks(METRICS, [partition])[partition].low
    first = first_records(log, METRICS, {partition: low})[partition]
    if first is None:
        raise Unavailable(f"partition {partition} has no record yet", reason="log_unavailable")
    return first_progress(low, first.broker_ms, partition, times)
