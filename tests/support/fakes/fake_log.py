"""A log in memory whose answers the test decides: at once, later, lost, refused, late, with any broker clock."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np

from tsdb.codec.records.log_record import DecodedRecords, decode_records
from tsdb.codec.records.series_record import Announcement, decode_announcement
from tsdb.log.interface import METRICS, SERIES, Appended, Group, Headers, LogReader, OnDone, TopicPartition, Watermarks
from tsdb.model.clock import Clock
from tsdb.model.errors import InvalidRequest, TsdbError, Unavailable


@dataclass(frozen=True, slots=True)
class Stored:
    """One record on the fake log. order: its place among all appends of all topics."""

    topic: str
    partition: int
    offset: int
    order: int
    key: bytes | None
    value: bytes
    headers: Headers = ()


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault of an append. stored: the record lands in spite of it (a lost acknowledgement).

    raised: `append` itself raises, instead of the answer.
    """

    error: TsdbError
    stored: bool = False
    raised: bool = False


Plan = Callable[[str, int, bytes], Fault | None]


class FakeLog:
    """Implements tsdb.log.interface.Log as far as a gateway uses it. Answers come during `append`, unless `held`."""

    def __init__(self, partitions: int, clock: Clock) -> None:
        self.records: list[Stored] = []
        self.plan: Plan = lambda topic, partition, value: None
        self.broker_ahead_ms = 0
        self.record_bytes_max: int | None = None
        self.on_append: Callable[[str], None] = lambda topic: None
        self._partitions = partitions
        self._clock = clock
        self._lock = threading.Lock()  # Guards records, _next and _waiting.
        self._next: defaultdict[TopicPartition, int] = defaultdict(int)
        self._held: set[str] = set()
        self._waiting: list[tuple[OnDone, Appended | TsdbError]] = []

    def hold(self, *topics: str) -> None:
        """Keep the answers of these topics back until `release`."""
        self._held |= set(topics)

    def release(self) -> int:
        """Give the waiting answers, and let later answers come at once. Returns their number."""
        with self._lock:
            waiting, self._waiting, self._held = self._waiting, [], set()
        for on_done, answer in waiting:
            on_done(answer)
        return len(waiting)

    def answer(self, count: int) -> int:
        """Give the first waiting answers in order. Later answers go on to wait. Returns the number of answers."""
        with self._lock:
            now, self._waiting = self._waiting[:count], self._waiting[count:]
        for on_done, answer in now:
            on_done(answer)
        return len(now)

    @property
    def waiting(self) -> int:
        """Number of waiting answers."""
        with self._lock:
            return len(self._waiting)

    def of(self, topic: str, partition: int | None = None) -> list[Stored]:
        """Records of a topic, in the order of their appends."""
        with self._lock:
            return [r for r in self.records if r.topic == topic and partition in (None, r.partition)]

    def announcements(self) -> list[Announcement]:
        """All records of the topic `series`, in order."""
        return [decode_announcement(record.key or b"", record.value) for record in self.of(SERIES)]

    def decoded(self, partition: int | None = None) -> DecodedRecords:
        """The records of the log as readers decode them; all must be sound."""
        values = [record.value for record in self.of(METRICS, partition)]
        starts = np.zeros(len(values) + 1, np.int64)
        np.cumsum([len(value) for value in values], out=starts[1:])
        decoded = decode_records(b"".join(values), starts)
        assert not decoded.status.any(), "the gateway wrote a record that readers refuse"
        return decoded

    def samples(self) -> dict[tuple[int, int], int]:
        """(series_id, ts_ms) -> bits of the value that readers show: the last one in the log."""
        decoded = self.decoded()
        keys = zip(decoded.series_id.tolist(), decoded.ts_ms.tolist(), strict=True)
        return dict(zip(keys, decoded.value.view(np.int64).tolist(), strict=True))

    def topic_id(self, topic: str) -> str:
        return f"id-of-{topic}"

    def partitions(self, topic: str) -> int:
        return self._partitions

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
        assert value is not None
        assert 0 <= partition < self._partitions
        self.on_append(topic)
        fault = self._fault(topic, partition, value)
        if fault is not None and fault.raised:
            raise fault.error
        with self._lock:
            stored = partial(self._store, topic, partition, key, value, headers)
            answer: Appended | TsdbError = fault.error if fault else stored()
            if fault is not None and fault.stored:
                stored()
            if topic in self._held:
                self._waiting.append((on_done, answer))
                return
        on_done(answer)

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
            raise Unavailable("held", reason="timeout")
        if isinstance(answers[0], TsdbError):
            raise answers[0]
        return answers[0]

    def flush(self, timeout_s: float) -> None:
        """Does nothing: only answers that the test keeps back wait."""

    def watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, Watermarks]:
        return {partition: Watermarks(0, self._next[topic, partition]) for partition in partitions}

    def high_watermarks(self, topic: str, partitions: Sequence[int]) -> dict[int, int]:
        return {partition: marks.high for partition, marks in self.watermarks(topic, partitions).items()}

    def offsets_for_times(self, topic: str, times_ms: Mapping[int, int]) -> dict[int, int | None]:
        raise NotImplementedError("a gateway looks nothing up")

    def reader(
        self, starts: Mapping[TopicPartition, int], *, prefetch_bytes: int | None = None, linger_s: float = 0.0
    ) -> LogReader:
        raise NotImplementedError("a gateway reads nothing")

    def group(self, group_id: str, name: str = "", *, linger_s: float = 0.0) -> Group:
        raise NotImplementedError("a gateway is in no group")

    def members(self, group_id: str) -> list[str]:
        raise NotImplementedError("a gateway is in no group")

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

    def _fault(self, topic: str, partition: int, value: bytes) -> Fault | None:
        if self.record_bytes_max is not None and topic == METRICS and len(value) > self.record_bytes_max:
            return Fault(InvalidRequest(f"{len(value)} bytes", reason="record_too_large"))
        return self.plan(topic, partition, value)

    def _store(self, topic: str, partition: int, key: bytes | None, value: bytes, headers: Headers) -> Appended:
        offset = self._next[topic, partition]
        self._next[topic, partition] += 1
        self.records.append(Stored(topic, partition, offset, len(self.records), key, value, headers))
        return Appended(partition, offset, self._clock.now_ms() + self.broker_ahead_ms)
