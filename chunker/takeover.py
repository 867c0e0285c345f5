"""Take-over: asks the log where the chunk stage of a partition begins. The rules are tsdb.chunks.resume's."""

from __future__ import annotations

from dataclasses import dataclass

from tsdb.chunks.progress import Progress, decode_commit
from tsdb.chunks.resume import LogFacts, check_gap, first_progress, progress_of, required_ms, seek_offset
from tsdb.codec.chunk_key import ProgressKey, encode_key
from tsdb.codec.chunk_marker import HoleRecord, ProgressMarker, decode_progress_marker
from tsdb.codec.log_record import encode_tick
from tsdb.log.interface import CHUNKS, METRICS, SERIES, EndOfLog, Log, Position
from tsdb.log.records import PREFETCH_BYTES, first_records
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.model.time_set import TimeSet

SERIES_WINDOWS_BACK = 2  # A gateway announces a series at least once in this many windows.
TRIES = 5  # Each lost to a log trimmed between two questions.
SCAN_POLL_S = 0.2
SCAN_SILENT_POLLS_MAX = 50  # 10 s without anything: the log does not answer.


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Where to begin: `progress` as it stands, next_offset the first record to read, series_offset the first
    announcement. case: commit, marker or first; of a first start the hole of a trimmed log."""

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
    """What the rules ask of one partition."""
    marks = log.watermarks(METRICS, [partition])[partition]
    first = first_records(log, METRICS, {partition: marks.low})[partition] if marks.low < marks.high else None
    required = log.offsets_for_times(METRICS, {partition: required_ms(progress, times)})[partition]
    return LogFacts(marks.low, marks.high, first.broker_ms if first else None, required)


def last_marker(log: Log, partition: int, topic_id: str) -> ProgressMarker | None:
    """The newest progress marker of this log in a partition of `chunks`: a pass over the whole partition."""
    found: ProgressMarker | None = None
    key = encode_key(ProgressKey())
    low = log.watermarks(CHUNKS, [partition])[partition].low
    silent = 0
    with log.reader({(CHUNKS, partition): low}, prefetch_bytes=PREFETCH_BYTES) as reader:
        while True:
            events = reader.poll(SCAN_POLL_S)
            silent = 0 if events else silent + 1
            if silent > SCAN_SILENT_POLLS_MAX:
                raise Unavailable(f"topic {CHUNKS}, partition {partition} does not answer", reason="log_unavailable")
            for event in events:
                if isinstance(event, EndOfLog):
                    return found
                for index in (event.key_starts[1:] - event.key_starts[:-1] == len(key)).nonzero()[0].tolist():
                    record = event.record(index)
                    if record.key == key and record.value is not None:
                        marker = decode_progress_marker(record.value)
                        found = marker if marker.topic_id == topic_id else found


def ensure_not_empty(log: Log, partition: int, clock: Clock) -> None:
    """A partition without a record gets a tick: its broker time is where windows begin."""
    marks = log.watermarks(METRICS, [partition])[partition]
    if marks.low == marks.high:
        log.append_sync(METRICS, partition, encode_tick(), timestamp_ms=clock.now_ms())


def _take_over(log: Log, partition: int, commit: Position | None, times: TimeSet, clock: Clock) -> TakeOver:
    topic_id = log.topic_id(METRICS)
    hole: HoleRecord | None = None
    if commit is not None:
        case, progress = "commit", decode_commit(commit.next_offset, commit.metadata, topic_id)
    elif (marker := last_marker(log, partition, topic_id)) is not None:
        case, progress = "marker", progress_of(marker)
    else:
        case = "first"
        progress, hole = _first(log, partition, times, clock)
    facts = log_facts(log, partition, progress, times)
    if progress.position > facts.high:
        raise LostOffsets(
            f"the chunk stage of partition {partition} is at offset {progress.position}; the log ends at {facts.high}",
            reason="offset_above_end",
            partition=partition,
        )
    if case != "first":
        check_gap(progress, facts, partition, times)
    next_offset = seek_offset(progress, facts)
    series_offset = _series_offset(log, partition, next_offset, facts, times, clock)
    return TakeOver(case, topic_id, progress, next_offset, series_offset, hole)


def _first(log: Log, partition: int, times: TimeSet, clock: Clock) -> tuple[Progress, HoleRecord | None]:
    ensure_not_empty(log, partition, clock)
    low = log.watermarks(METRICS, [partition])[partition].low
    first = first_records(log, METRICS, {partition: low})[partition]
    if first is None:
        raise Unavailable(f"partition {partition} has no record yet", reason="log_unavailable")
    return first_progress(low, first.broker_ms, partition, times)


def _series_offset(log: Log, partition: int, next_offset: int, facts: LogFacts, times: TimeSet, clock: Clock) -> int:
    """First announcement to read: two windows before the records, where each of their series was announced once."""
    record = first_records(log, METRICS, {partition: next_offset})[partition] if next_offset < facts.high else None
    since_ms = (clock.now_ms() if record is None else record.broker_ms) - SERIES_WINDOWS_BACK * times.window_ms
    found = log.offsets_for_times(SERIES, {partition: since_ms})[partition]
    return log.watermarks(SERIES, [partition])[partition].high if found is None else found
