"""Reads single records and whole small topics, over any log, for start resolution and settings. Not for hot paths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tsdb.log.interface import EndOfLog, Event, Log, LogReader, LogRecord, RecordBatch
from tsdb.model.errors import LostOffsets, Unavailable

# This is also the size of one poll, so that a search for one record uses little more memory than that.
PREFETCH_BYTES = 1024 * 1024
POLL_S = 0.2
SILENT_POLLS_MAX = 50  # Empty polls, 10 s in total, after which the log counts as not answering.
LOOK_BACK_MAX = 1 << 20  # Offsets below the end to search for the last record: gaps are never that long.


def read_to_end(log: Log, topic: str, partition: int) -> Iterator[LogRecord]:
    """All records from the low watermark to the end of the log at the time it is reached. Raises Unavailable."""
    for batch in read_batches(log, topic, partition):
        yield from map(batch.record, range(len(batch.offsets)))


def read_batches(log: Log, topic: str, partition: int, start: int | None = None) -> Iterator[RecordBatch]:
    """Batches from `start` (None: the low watermark) to the end at the time it is reached. Raises Unavailable."""
    first = log.watermarks(topic, [partition])[partition].low if start is None else start
    with log.reader({(topic, partition): first}, prefetch_bytes=PREFETCH_BYTES) as reader:
        yield from (event for event in _until_end(reader, {partition}) if not isinstance(event, EndOfLog))


def first_records(log: Log, topic: str, offsets: Mapping[int, int]) -> dict[int, LogRecord | None]:
    """The first record at or after an offset, by partition; None without such a record. Raises the errors of
    a reader.
    """
    found: dict[int, LogRecord | None] = {}
    if not offsets:
        return found
    starts = {(topic, partition): offset for partition, offset in offsets.items()}
    with log.reader(starts, prefetch_bytes=PREFETCH_BYTES) as reader:
        for event in _events(reader):
            if event.partition not in found:
                found[event.partition] = None if isinstance(event, EndOfLog) else event.record(0)
            if len(found) == len(offsets):
                break
    return found


def last_records(log: Log, topic: str, partitions: Sequence[int]) -> dict[int, LogRecord | None]:
    """The last readable record of each partition; None for a partition without records.

    The last offset may have no record, because logs have gaps. So the search goes back, twice as far each time, until
    it finds one. If the log is trimmed meanwhile, the search starts again.
    """
    found: dict[int, LogRecord | None] = {}
    back = 1
    while len(found) < len(partitions):
        missing = [partition for partition in partitions if partition not in found]
        marks = log.watermarks(topic, missing)
        starts = {p: max(marks[p].low, marks[p].high - back) for p in missing if marks[p].low < marks[p].high}
        found.update(dict.fromkeys(partition for partition in missing if partition not in starts))
        try:
            last = _last_from(log, topic, starts, {p: marks[p].high for p in starts})
        except LostOffsets:
            continue
        whole = {partition for partition, start in starts.items() if start == marks[partition].low}
        found.update({p: record for p, record in last.items() if record is not None or p in whole})
        back = min(2 * back, LOOK_BACK_MAX)
    return found


def _last_from(log: Log, topic: str, starts: Mapping[int, int], ends: Mapping[int, int]) -> dict[int, LogRecord | None]:
    last: dict[int, LogRecord | None] = dict.fromkeys(starts)
    left = set(starts)
    if not starts:
        return last
    with log.reader({(topic, p): start for p, start in starts.items()}, prefetch_bytes=PREFETCH_BYTES) as reader:
        for event in _events(reader):
            if isinstance(event, EndOfLog):
                ended = True
            else:
                record = last[event.partition] = event.record(len(event.offsets) - 1)
                # A broker reports the end only after a fetch has waited there. The offset of the last record shows the
                # end at once.
                ended = record.offset >= ends[event.partition] - 1
            if ended:
                left.discard(event.partition)
            if not left:
                break
    return last


def _until_end(reader: LogReader, partitions: set[int]) -> Iterator[Event]:
    left = set(partitions)
    for event in _events(reader):
        yield event
        if isinstance(event, EndOfLog):
            left.discard(event.partition)
            if not left:
                return


def _events(reader: LogReader) -> Iterator[Event]:
    silent = 0
    while silent < SILENT_POLLS_MAX:
        events = reader.poll(POLL_S, max_bytes=PREFETCH_BYTES)
        silent = 0 if events else silent + 1
        yield from events
    raise Unavailable("the log does not answer a reader", reason="log_unavailable", retry_after_s=1.0)
