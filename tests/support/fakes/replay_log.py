"""A log in memory for replays: the test puts records, hides topics, and makes polls and lookups fail."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from support.data.heads import announcement, id_of
from tsdb.codec.crc32c import crc32c
from tsdb.codec.records.log_record import encode_record
from tsdb.codec.records.log_record_kernels import DETAILS_VERSION
from tsdb.log.interface import METRICS, SERIES, EndOfLog, Event, Log, LogRecord, RecordBatch, TopicPartition, Watermarks
from tsdb.model.clock import ManualClock
from tsdb.model.errors import TsdbError
from tsdb.model.window import EPOCH_MS

VERSION_AT = 4  # docs/formats/log-record.md


class ReplayLog:
    """The methods of a Log that Replay and SeriesFeed use. `hidden`: topics whose readers see no new records.

    `poll_errors`: raised by the next polls of a topic's readers, oldest first; `ask_errors`: errors of the next
    lookups.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.hidden: set[str] = set()
        self.poll_errors: defaultdict[str, list[TsdbError]] = defaultdict(list)
        self.ask_errors: list[TsdbError] = []
        self.polls = 0
        self.low: defaultdict[TopicPartition, int] = defaultdict(int)
        self._records: defaultdict[TopicPartition, list[LogRecord]] = defaultdict(list)
        self._high: defaultdict[TopicPartition, int] = defaultdict(int)

    @property
    def log(self) -> Log:
        """This object, typed as a Log."""
        return cast(Log, self)

    def put(self, value: bytes, partition: int = 0, *, broker_ms: int | None = None, gap: int = 0) -> int:
        """Append a record, with `gap` offsets without a record behind it. Returns its offset."""
        return self._put((METRICS, partition), None, value, broker_ms, gap)

    def put_samples(self, *samples: tuple[int, int, float], partition: int = 0, broker_ms: int | None = None) -> int:
        """Append a record of (series number, ts_ms, value). Returns its offset."""
        return self.put(encoded(*samples), partition, broker_ms=broker_ms)

    def announce(self, *numbers: int, partition: int = 0, epoch: int | None = None) -> None:
        """Announce numbered series for the index epoch of now."""
        for number in numbers:
            key, value = announcement(number, self.clock.now_ms() // EPOCH_MS if epoch is None else epoch)
            self._put((SERIES, partition), key, value, None, 0)

    def announce_bytes(self, key: bytes, value: bytes, partition: int = 0) -> None:
        """Put any bytes as an announcement."""
        self._put((SERIES, partition), key, value, None, 0)

    def high(self, topic: str = METRICS, partition: int = 0) -> int:
        """High watermark of a partition."""
        return self._high[topic, partition]

    def between(self, place: TopicPartition, start: int, count: int) -> list[LogRecord]:
        """Up to `count` records from an offset on."""
        return [record for record in self._records[place] if record.offset >= start][:count]

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        if self.ask_errors:
            raise self.ask_errors.pop(0)
        return {p: Watermarks(self.low[topic, p], self._high[topic, p]) for p in partitions}

    def high_watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return {partition: marks.high for partition, marks in self.watermarks(topic, partitions).items()}

    def reader(
        self, starts: Mapping[TopicPartition, int], *, prefetch_bytes: int | None = None, linger_s: float = 0.0
    ) -> ReplayReader:
        return ReplayReader(self, dict(starts))

    def _put(self, place: TopicPartition, key: bytes | None, value: bytes, broker_ms: int | None, gap: int) -> int:
        offset = self._high[place]
        self._high[place] = offset + 1 + gap
        self._records[place].append(
            LogRecord(offset, self.clock.now_ms() if broker_ms is None else broker_ms, key, value)
        )
        return offset


class ReplayReader:
    """LogReader of a ReplayLog; an empty poll lets its timeout pass on the log's clock."""

    def __init__(self, log: ReplayLog, places: dict[TopicPartition, int]) -> None:
        self._log = log
        self._places = places
        self._topic = next(iter(places))[0]
        self._told: dict[TopicPartition, int] = {}
        self.closed = False

    def poll(self, timeout_s: float, *, max_records: int = 5_000, max_bytes: int = 0) -> list[Event]:
        self._log.polls += 1
        errors = self._log.poll_errors[self._topic]
        if errors:
            raise errors.pop(0)
        events = [] if self._topic in self._log.hidden else self._events(max_records)
        if not events:
            self._log.clock.sleep(timeout_s)
        return events

    def wake(self) -> None:
        """A poll never waits for long."""

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        self._places[topic, partition] = next_offset
        self._told.pop((topic, partition), None)

    def pause(self, topic: str, partition: int) -> None:
        self._places.pop((topic, partition), None)

    def close(self) -> None:
        self.closed = True

    def _events(self, max_records: int) -> list[Event]:
        events: list[Event] = []
        for place, start in self._places.items():
            records = self._log.between(place, start, max_records)
            if records:
                events.append(_batch(place, records))
                self._places[place] = records[-1].offset + 1
            elif self._told.get(place) != self._log.high(*place):
                self._places[place] = self._told[place] = self._log.high(*place)
                events.append(EndOfLog(*place, self._log.high(*place)))
        return events


def encoded(*samples: tuple[int, int, float]) -> bytes:
    """A log record of one pack."""
    return encode_record(
        np.array([7], np.uint64),
        np.array([len(samples)], np.uint32),
        np.array([id_of(number) for number, _, _ in samples], np.uint64),
        np.array([ts for _, ts, _ in samples], np.int64),
        np.array([value for _, _, value in samples], np.float64),
    )


def of_newer_version(record: bytes) -> bytes:
    """The record as a writer of a later version might mean it: another version byte, a right checksum."""
    body = record[:VERSION_AT] + bytes([DETAILS_VERSION + 1]) + record[VERSION_AT + 1 : -4]
    return body + crc32c(body).to_bytes(4, "little")


def _batch(place: TopicPartition, records: list[LogRecord]) -> RecordBatch:
    values = [record.value or b"" for record in records]
    keys = [record.key or b"" for record in records]

    def starts(parts: list[bytes]) -> Any:
        return np.cumsum([0, *map(len, parts)], dtype=np.int64)

    return RecordBatch(
        *place,
        b"".join(values),
        starts(values),
        b"".join(keys),
        starts(keys),
        np.array([record.offset for record in records], np.int64),
        np.array([record.broker_ms for record in records], np.int64),
    )
