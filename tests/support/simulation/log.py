"""A log in memory with faults: lost, refused and late appends, offset gaps, broker times that step back, trims,
compaction. One thread. Everything ever stored stays in `stored`, for the oracle.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from tsdb.log.interface import (
    CHUNKS,
    CHUNKS_DLQ,
    META,
    METRICS,
    SERIES,
    Appended,
    EndOfLog,
    Event,
    Group,
    Headers,
    LogRecord,
    OnDone,
    RecordBatch,
    TopicPartition,
    Watermarks,
)
from tsdb.model.clock import ManualClock
from tsdb.model.errors import LostOffsets, TsdbError, Unavailable

RECORDS_MAX = 1 << 30
DAMAGED_FROM = 8

OnStored = Callable[[str, int, LogRecord, bool], None]


@dataclass(frozen=True)
class LogFaults:
    """Shares of appends that go wrong, by how. held, held_samples: answers of `chunks` and of `metrics` that wait for
    `answer`. back_ms: how far broker times step back at most. damaged: share of records whose bytes change on disk, by
    topic; such a record of `series` is lost.
    """

    lost_ack: float = 0.0
    refused: float = 0.0
    late: float = 0.0
    held: float = 0.0
    held_samples: float = 0.0
    gap: float = 0.0
    back_ms: int = 0
    damaged: Mapping[str, float] = field(default_factory=dict)


@dataclass
class Stretch:
    """One partition of a topic. latest_ms: the highest broker time so far."""

    low: int = 0
    high: int = 0
    latest_ms: int = 0
    records: list[LogRecord] = field(default_factory=list)
    offsets: list[int] = field(default_factory=list)

    def put(self, record: LogRecord, gap: int) -> None:
        self.records.append(record)
        self.offsets.append(record.offset)
        self.high = record.offset + 1 + gap
        self.latest_ms = max(self.latest_ms, record.broker_ms)

    def since(self, offset: int, count: int = RECORDS_MAX) -> list[LogRecord]:
        at = bisect_left(self.offsets, offset)
        return self.records[at : at + count]

    def keep(self, records: list[LogRecord]) -> None:
        self.records = records
        self.offsets = [record.offset for record in records]


class SimulatedLog:
    """tsdb.log.interface.Log. on_stored: called with each record that lands, before its writer is answered, as it was
    sent, and whether its bytes are damaged."""

    def __init__(self, partitions: int, clock: ManualClock, ahead_ms: int, groups: Callable[[str], Group]) -> None:
        self.faults = LogFaults()
        self.random = random.Random(0)
        self.on_stored: list[OnStored] = []
        self.spares: Callable[[str, bytes, bytes], bool] = lambda topic, key, value: (
            False
        )  # Records that no fault damages.
        self.appends: Counter[str] = Counter()
        self.stretches = {
            (topic, n): Stretch() for topic in (METRICS, SERIES, CHUNKS, CHUNKS_DLQ) for n in range(partitions)
        }
        self.stretches[META, 0] = Stretch()
        self._partitions = partitions
        self._clock = clock
        self._ahead_ms = ahead_ms
        self._groups = groups
        self._late: list[Callable[[], object]] = []
        self._held: list[tuple[OnDone, Appended]] = []

    # Methods for the driver.

    def land(self) -> None:
        """Store the appends whose callers have given up."""
        late, self._late = self._late, []
        for store in late:
            store()

    def answer(self) -> int:
        """Give the answers that wait now. Answers to appends that these answers cause wait for the next call. Returns
        their number.
        """
        held, self._held = self._held, []
        for on_done, appended in held:
            on_done(appended)
        return len(held)

    def trim(self, topic: str, partition: int, low: int) -> None:
        """Remove all records below an offset, as retention does. The offset may have no record."""
        stretch = self.stretches[topic, partition]
        stretch.low = min(max(stretch.low, low), stretch.high)
        stretch.keep(stretch.since(stretch.low))

    def compact(self, topic: str, partition: int, below: int) -> None:
        """Keep the last record of each key below an offset, and all records from the offset on. A last record that is
        null is removed too.
        """
        stretch = self.stretches[topic, partition]
        last = {record.key: record.offset for record in stretch.records if record.offset < below}
        stretch.keep(
            [
                record
                for record in stretch.records
                if record.offset >= below or (last[record.key] == record.offset and record.value is not None)
            ]
        )

    def records(self, topic: str, partition: int) -> list[LogRecord]:
        """The retained records of a partition."""
        return self.stretches[topic, partition].records

    # Methods of Log.

    def topic_id(self, topic: str) -> str:
        return f"id-{topic}"

    def partitions(self, topic: str) -> int:
        return 1 if topic == META else self._partitions

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        on_done: OnDone,
    ) -> None:
        self.appends[topic] += 1
        faults, dice = self.faults, self.random.random()
        if dice < faults.refused:
            on_done(Unavailable("the broker is away"))
        elif dice < faults.refused + faults.lost_ack:
            self._store(topic, partition, key, value)
            on_done(Unavailable("the answer is lost", reason="timeout"))
        elif dice < faults.refused + faults.lost_ack + faults.late:
            self._late.append(lambda: self._store(topic, partition, key, value))
            on_done(Unavailable("no answer in time", reason="timeout"))
        else:
            appended = self._store(topic, partition, key, value)
            held = {CHUNKS: faults.held, METRICS: faults.held_samples}.get(topic, 0.0)
            if held and self.random.random() < held:
                self._held.append((on_done, appended))
            else:
                on_done(appended)

    def append_sync(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
        timeout_s: float = 30.0,
    ) -> Appended:
        answers: list[Appended | TsdbError] = []
        self.append(topic, partition, value, key=key, on_done=answers.append)
        if not answers:
            self.answer()
        answer = answers[0]
        if isinstance(answer, TsdbError):
            raise answer
        return answer

    def flush(self, timeout_s: float) -> None:
        self.answer()

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        stretches = {number: self.stretches[topic, number] for number in partitions}
        return {number: Watermarks(stretch.low, stretch.high) for number, stretch in stretches.items()}

    def high_watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return {partition: marks.high for partition, marks in self.watermarks(topic, partitions).items()}

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        return {
            number: next((r.offset for r in self.records(topic, number) if r.broker_ms >= time_ms), None)
            for number, time_ms in times_ms.items()
        }

    def reader(
        self, starts: Mapping[TopicPartition, int], *, prefetch_bytes: int | None = None, linger_s: float = 0.0
    ) -> SimulatedReader:
        return SimulatedReader(self, self._clock, starts)

    def group(self, group_id: str, name: str = "", *, linger_s: float = 0.0) -> Group:
        return self._groups(group_id)

    def members(self, group_id: str) -> list[str]:
        return []  # A restore kills all loaders first.

    def stalled(self) -> str:
        return ""

    def close(self) -> None:
        """Nothing to do: the fake has no resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _store(self, topic: str, partition: int, key: bytes | None, value: bytes | None) -> Appended:
        stretch = self.stretches[topic, partition]
        back_ms = self.random.choice([0, 0, 1, self.faults.back_ms]) if self.faults.back_ms else 0
        # Readers rely on clocks that step back by less than `ahead`.
        broker_ms = max(self._clock.now_ms() - back_ms, stretch.latest_ms - self._ahead_ms + 1)
        record = LogRecord(stretch.high, broker_ms, key, value)
        share = self.faults.damaged.get(topic, 0.0)
        damaged = (
            bool(share and value) and self.random.random() < share and not self.spares(topic, key or b"", value or b"")
        )
        kept = replace(record, value=self._damage(value or b"")) if damaged else record
        if damaged and topic == SERIES:
            # The log has no record, because the leader that acknowledged it was replaced by a follower without it.
            stretch.high += 1
        else:
            stretch.put(kept, self.random.choice([1, 2, 7]) if self.random.random() < self.faults.gap else 0)
        for heard in self.on_stored:
            heard(topic, partition, record, damaged)
        return Appended(partition, record.offset, broker_ms)

    def _damage(self, value: bytes) -> bytes:
        # Behind the version, which has its own rule.
        at = self.random.randrange(DAMAGED_FROM, len(value))
        return value[:at] + bytes([value[at] ^ 1 << self.random.randrange(8)]) + value[at + 1 :]


class SimulatedReader:
    """LogReader. A poll never waits; an empty one lets its timeout pass on the clock."""

    def __init__(self, log: SimulatedLog, clock: ManualClock, starts: Mapping[TopicPartition, int]) -> None:
        self._log = log
        self._clock = clock
        self._next = dict(starts)
        self._ended: dict[TopicPartition, int] = {}
        self._resting: set[TopicPartition] = set()

    def poll(self, timeout_s: float, *, max_records: int = 5_000, max_bytes: int = 0) -> list[Event]:
        events = list(self._events(max_records))
        if not events and timeout_s > 0:
            self._clock.sleep(timeout_s)
        return events

    def wake(self) -> None:
        """A poll never waits for long."""

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        self._next[topic, partition] = next_offset
        self._ended.pop((topic, partition), None)
        self._resting.discard((topic, partition))

    def pause(self, topic: str, partition: int) -> None:
        self._resting.add((topic, partition))

    @property
    def unavailable_since_monotonic(self) -> float | None:
        return None

    def close(self) -> None:
        """Nothing to do: the fake has no resources."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _events(self, max_records: int) -> Iterator[Event]:
        places = sorted(self._next.keys() - self._resting)
        for place in places:
            stretch, start = self._log.stretches[place], self._next[place]
            if not stretch.low <= start <= stretch.high:
                self._resting.add(place)
                raise _lost(place, start, stretch)
        for place in places:
            stretch, start = self._log.stretches[place], self._next[place]
            records = stretch.since(start, max_records)
            if records:
                self._next[place] = records[-1].offset + 1
                yield _batch(place, records)
            elif self._ended.get(place) != stretch.high:
                self._next[place] = self._ended[place] = stretch.high
                yield EndOfLog(*place, stretch.high)


def _lost(place: TopicPartition, start: int, stretch: Stretch) -> LostOffsets:
    below = start < stretch.low
    return LostOffsets(
        f"{place} is asked from {start}; it holds [{stretch.low}, {stretch.high})",
        reason="below_low_watermark" if below else "offset_above_end",
        topic=place[0],
        partition=place[1],
        asked=start,
        low=stretch.low,
        high=stretch.high,
    )


def _batch(place: TopicPartition, records: list[LogRecord]) -> RecordBatch:
    values, keys = [record.value or b"" for record in records], [record.key or b"" for record in records]
    return RecordBatch(
        *place,
        b"".join(values),
        _starts(values),
        b"".join(keys),
        _starts(keys),
        np.array([record.offset for record in records], np.int64),
        np.array([record.broker_ms for record in records], np.int64),
        np.array([record.value is None for record in records]),
    )


def _starts(parts: list[bytes]) -> NDArray[np.int64]:
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)
