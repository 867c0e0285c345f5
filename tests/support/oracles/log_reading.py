"""The whole log and its announcements, read back as readers do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from support.servers.logs import poll_until
from tsdb.codec.records.log_record import decode_records
from tsdb.codec.records.series_record import decode_announcement
from tsdb.log.interface import METRICS, SERIES, EndOfLog, Event, Log, RecordBatch


@dataclass
class LogContents:
    """values: (series_id, ts_ms) -> bits of the value that readers show. held: (partition, offset) -> series ids.

    announced: (series_id, epoch) -> canonical labels.
    """

    values: dict[tuple[int, int], int]
    held: dict[tuple[int, int], list[int]]
    announced: dict[tuple[int, int], bytes]


def read_contents(log: Log) -> LogContents:
    """Everything up to the end of each partition."""
    found = LogContents({}, {}, {})
    for topic in (SERIES, METRICS):
        partitions = range(log.partitions(topic))
        marks = log.watermarks(topic, list(partitions))
        with log.reader({(topic, partition): 0 for partition in partitions}) as reader:
            for event in poll_until(reader, partial(_all_ended, {p: mark.high for p, mark in marks.items()})):
                if isinstance(event, RecordBatch):
                    _take(event, found)
    return found


def _all_ended(high_watermarks: Mapping[int, int], events: Sequence[Event]) -> bool:
    ends = [event for event in events if isinstance(event, EndOfLog)]
    return {end.partition for end in ends if end.next_offset >= high_watermarks[end.partition]} == set(high_watermarks)


def _take(batch: RecordBatch, found: LogContents) -> None:
    if batch.topic == SERIES:
        for index in range(len(batch.offsets)):
            record = batch.record(index)
            announcement = decode_announcement(record.key or b"", record.value or b"")
            found.announced[announcement.series_id, announcement.epoch] = announcement.canonical
        return
    decoded = decode_records(batch.values, batch.value_starts)
    assert not decoded.status.any(), "the gateway wrote a record that readers refuse"
    for index, record_offset in enumerate(batch.offsets.tolist()):
        start, end = decoded.sample_start[index], decoded.sample_start[index + 1]
        found.held[batch.partition, record_offset] = decoded.series_id[start:end].tolist()
    keys = zip(decoded.series_id.tolist(), decoded.ts_ms.tolist(), strict=True)
    found.values.update(zip(keys, decoded.value.view(np.int64).tolist(), strict=True))
