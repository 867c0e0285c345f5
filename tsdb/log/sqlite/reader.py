"""Reader of an embedded log. It takes what this process appends from memory, once it has read everything before.

Until then, and after commits of other processes, a poll reads all its partitions from the database, in one transaction
of one connection.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from tsdb.log.interface import (
    KEYLESS,
    POLL_BYTES_MAX,
    POLL_RECORDS_MAX,
    EndOfLog,
    Event,
    RecordBatch,
    TopicPartition,
)
from tsdb.log.joined_bytes import empty, join_bytes
from tsdb.log.sqlite.appends import decode_headers
from tsdb.log.sqlite.arrivals import Arrivals, CommittedRows, Row
from tsdb.log.sqlite.database import ERRORS, OFFSET_MAX, Lane, check_lane, connect, find_lanes
from tsdb.log.sqlite.values import ValueReader
from tsdb.model.errors import LostOffsets, Unavailable
from tsdb.sqlite.database import transaction

SELECT = "SELECT id, broker_ms, value, key, headers, coding FROM records WHERE id >= ? AND id < ? ORDER BY id LIMIT ?"


@dataclass(slots=True)
class _Place:
    """Read position of one partition. at_end: the next offset at which EndOfLog was last returned."""

    topic_id: str
    next_offset: int
    at_end: int | None = None


class SqliteReader:
    """Implements LogReader. prefix: stands before topic names. topic_ids: gives the expected incarnation of a topic.
    linger_s: see Log."""

    def __init__(
        self, path: Path, prefix: str, arrivals: Arrivals, topic_ids: Callable[[str], str], linger_s: float
    ) -> None:
        self._connection = connect(path)
        self._values = ValueReader(self._connection)
        self._prefix = prefix
        self._arrivals = arrivals
        self._arrival = arrivals.subscribe()
        self._arrived: deque[CommittedRows] = deque()  # Taken from the arrivals, and not returned yet.
        self._topic_ids = topic_ids
        self._linger_s = linger_s
        self._rests_until = 0.0  # Monotonic time until which the reader waits after a read up to the end.
        self._places: dict[TopicPartition, _Place] = {}
        self._unavailable_since: float | None = None

    def poll(
        self, timeout_s: float, *, max_records: int = POLL_RECORDS_MAX, max_bytes: int = POLL_BYTES_MAX
    ) -> list[Event]:
        give_up_at = time.monotonic() + timeout_s
        while True:
            # A commit does not end this sleep. Otherwise each commit would wake each reader for a few records.
            time.sleep(max(0.0, min(self._rests_until, give_up_at) - time.monotonic()))
            arrived = self._arrival.count
            try:
                events = self._next_events(max_records, max_bytes)
                self._unavailable_since = None
            except Unavailable:
                self._unavailable_since = self._unavailable_since or time.monotonic()
                events = []
            left_s = give_up_at - time.monotonic()
            if events or self._arrival.take_woken() or left_s <= 0:
                return events
            self._arrival.wait(arrived, left_s)

    def wake(self) -> None:
        self._arrival.wake()

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        self.assign({(topic, partition): next_offset})

    def pause(self, topic: str, partition: int) -> None:
        self.release([(topic, partition)])

    def assign(self, starts: Mapping[TopicPartition, int]) -> None:
        """Read these partitions too, each from its offset on."""
        for (topic, partition), next_offset in starts.items():
            self._places[topic, partition] = _Place(self._topic_ids(topic), next_offset)
        self._arrival.stop()
        self._rests_until = 0.0
        self._subscribe()

    def release(self, partitions: Iterable[TopicPartition]) -> None:
        """Stop reading these partitions."""
        for partition in partitions:
            self._places.pop(partition, None)
        self._subscribe()

    @property
    def unavailable_since_monotonic(self) -> float | None:
        return self._unavailable_since

    def close(self) -> None:
        self._arrivals.remove(self._arrival)
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _subscribe(self) -> None:
        self._arrival.assign((self._prefix + topic, partition) for topic, partition in self._places)

    def _next_events(self, max_records: int, max_bytes: int) -> list[Event]:
        arrived = self._arrival.take()
        if arrived is None:
            self._arrived.clear()
            return self._read_database(max_records, max_bytes)
        self._arrived.extend(arrived)
        return self._take_arrived(max_records, max_bytes) if self._arrived else []

    def _take_arrived(self, max_records: int, max_bytes: int) -> list[Event]:
        """Events of the records that this process has appended. All before them were returned."""
        taken: dict[TopicPartition, list[Row]] = {}
        while self._arrived and max_records > 0 and max_bytes > 0:
            stored = self._arrived.popleft()
            partition = stored.place[0][len(self._prefix) :], stored.place[1]
            place = self._places.get(partition)
            if place is None or stored.end_offset <= place.next_offset:
                continue  # It rests, or the database was read after the commit.
            if stored.first_offset != place.next_offset or stored.topic_id != place.topic_id:
                self._arrival.stop()
                break
            if len(stored.rows) > max_records or stored.size > max_bytes:
                stored, rest = _split(stored, max_records, max_bytes)
                self._arrived.extendleft(rest)
            taken.setdefault(partition, []).extend(stored.rows)
            place.next_offset = stored.end_offset
            max_records -= len(stored.rows)
            max_bytes -= stored.size
        events: list[Event] = [_to_batch(partition, rows) for partition, rows in taken.items()]
        if not self._arrived:
            for partition, place in self._places.items():
                if place.at_end != place.next_offset:
                    place.at_end = place.next_offset
                    events.append(EndOfLog(*partition, place.next_offset))
        self._rest(events)
        return events

    def _read_database(self, max_records: int, max_bytes: int) -> list[Event]:
        # Called first, so that no commit falls between the read and the arrivals.
        self._arrival.listen()
        exhausted = False
        try:
            with transaction(self._connection, ERRORS, "reading", write=False):
                events, exhausted = self._read(max_records, max_bytes)
        finally:
            if not exhausted:
                self._arrival.stop()
        # Done only after the transaction has succeeded, because after an error the same records are read again.
        for event in events:
            self._passed(event)
        if exhausted:
            self._rest(events)
        return events

    def _rest(self, events: list[Event]) -> None:
        self._rests_until = time.monotonic() + self._linger_s if events else 0.0

    def _read(self, max_records: int, max_bytes: int) -> tuple[list[Event], bool]:
        """(events, whether nothing more can be read now)."""
        topics = {topic: find_lanes(self._connection, self._prefix + topic) for topic, _ in self._places}
        # All partitions are checked before any is read: the error of one must not lose the records of another.
        lanes = {partition: self._lane(partition, topics[partition[0]]) for partition in list(self._places)}
        batches: list[Event] = []
        ends: list[Event] = []
        for partition, lane in lanes.items():
            if max_records <= 0 or max_bytes <= 0:
                return batches + ends, False
            rows, size = self._rows(lane, self._places[partition].next_offset, max_records, max_bytes)
            max_records -= len(rows)
            max_bytes -= size
            if rows:
                batches.append(_to_batch(partition, rows))
                # Moved to the end of the queue, so that no partition waits for ever behind a busy one.
                self._places[partition] = self._places.pop(partition)
            if max_records > 0 and max_bytes > 0:
                ends.extend(self._ends(partition, lane))
        return batches + ends, max_records > 0 and max_bytes > 0

    def _lane(self, partition: TopicPartition, lanes: Mapping[int, Lane]) -> Lane:
        topic, number = partition
        place = self._places[partition]
        lane = check_lane(topic, place.topic_id, number, lanes)
        if lane.low_offset <= place.next_offset <= lane.next_offset:
            return lane
        del self._places[partition]
        raise LostOffsets(
            f"topic {topic}, partition {number}: offset {place.next_offset} is not in the log, which holds "
            f"[{lane.low_offset}, {lane.next_offset})",
            reason="below_low_watermark" if place.next_offset < lane.low_offset else "offset_above_end",
            topic=topic,
            partition=number,
            asked=place.next_offset,
            low=lane.low_offset,
            high=lane.next_offset,
        )

    def _rows(self, lane: Lane, next_offset: int, max_records: int, max_bytes: int) -> tuple[list[Row], int]:
        """(rows, bytes of their values), from next_offset on; at least one row if any exists."""
        rows: list[Row] = []
        size = 0
        for row in self._connection.execute(SELECT, (lane.first_id + next_offset, lane.end_id, max_records)):
            value = self._values.decode(lane, row[5], row[2])
            rows.append((*row[:2], value, *row[3:5]))
            size += len(value or b"")
            if size >= max_bytes:
                break
        return rows, size

    def _ends(self, partition: TopicPartition, lane: Lane) -> list[Event]:
        # The end may lie past a gap that will never hold a record.
        end = lane.next_offset
        return [] if self._places[partition].at_end == end else [EndOfLog(*partition, end)]

    def _passed(self, event: Event) -> None:
        place = self._places[event.topic, event.partition]
        if isinstance(event, EndOfLog):
            place.next_offset = place.at_end = event.next_offset
        else:
            place.next_offset = int(event.offsets[-1]) + 1


def _split(stored: CommittedRows, max_records: int, max_bytes: int) -> tuple[CommittedRows, list[CommittedRows]]:
    """The first rows, as many as the bounds allow and at least one, and the others."""
    count = size = 0
    for row in stored.rows[:max_records]:
        count += 1
        size += len(row[2] or b"") + len(row[3] or b"")
        if size >= max_bytes:
            break
    if count == len(stored.rows):
        return stored, []
    first, rest = stored.rows[:count], stored.rows[count:]
    next_offset = (first[-1][0] & OFFSET_MAX) + 1
    return (
        replace(stored, rows=first, end_offset=next_offset, size=size),
        [replace(stored, rows=rest, first_offset=next_offset, size=stored.size - size)],
    )


def _to_batch(partition: TopicPartition, rows: list[Row]) -> RecordBatch:
    topic, number = partition
    ids, broker_ms, value_parts, key_parts, header_parts = zip(*rows, strict=True)
    values = join_bytes(value_parts)
    keys = empty(len(rows)) if topic in KEYLESS else join_bytes(key_parts)
    some_headers = topic not in KEYLESS and any(header_parts)
    return RecordBatch(
        topic,
        number,
        values.data,
        values.starts,
        keys.data,
        keys.starts,
        np.array(ids, np.int64) & OFFSET_MAX,
        np.array(broker_ms, np.int64),
        values.nulls,
        list(map(decode_headers, header_parts)) if some_headers else None,
    )
