"""Source over a Group: `chunks` shared among loaders, with `series` of the same partitions.

A partition without `loaded` starts from zero, even if it has commits: history may have been dropped, and only its
content counts. An assigned partition also starts from zero after `start_over`. One thread, that of the consumer.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise, repeat

from tsdb.log.interface import CHUNKS, SERIES, EndOfLog, Event, Group, Log, RecordBatch, TopicPartition
from tsdb.log.interface import Position as LogPosition
from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.parallel_consumer import CommitFailed, Polled, Position, Record, SourceListener

POLL_BYTES_MAX = 16 << 20
RETRY_S = 1.0  # Between two tries, while the start of a partition cannot be found.

log = get_logger(__name__)

LINGER_S = 0.1  # The chunks of one moment come together.

# Returns the partitions that have `loaded`. Raises Unavailable or Overloaded while history does not answer.
LoadedPartitions = Callable[[Collection[int]], Collection[int]]
# Called at each start with the partitions that start from zero, and the high watermarks of `chunks` at that moment.
OnFromZero = Callable[[Mapping[int, int]], None]


class LogSource:
    """tsdb.parallel_consumer.Source and tsdb.log.interface.GroupListener. The caller closes the log."""

    def __init__(
        self, log_: Log, group_id: str, loaded: LoadedPartitions, on_from_zero: OnFromZero, clock: Clock
    ) -> None:
        self._log = log_
        self._group: Group = log_.group(group_id, linger_s=LINGER_S)
        self._loaded = loaded
        self._on_from_zero = on_from_zero
        self._clock = clock
        self._poll_at = clock.monotonic()
        self._listener: SourceListener | None = None
        self._lock = threading.Lock()  # Guards _again; no other lock is taken under it.
        self._again: set[int] = set()
        self._refusal: tuple[TsdbError, float] | None = None

    def refusal(self, patience_s: float) -> TsdbError | None:
        """The last error, if no poll has succeeded for patience_s: partitions cannot be taken. Any thread."""
        refusal = self._refusal
        if refusal is None or self._clock.monotonic() - refusal[1] < patience_s:
            return None
        return refusal[0]

    def is_spare(self) -> bool:
        """See Group.is_spare for the contract."""
        return self._group.is_spare()

    def start_over(self, partitions: Collection[int]) -> None:
        """Start the assigned ones of these partitions from zero with the next poll. Any thread."""
        with self._lock:
            self._again.update(partitions)

    def start(self, listener: SourceListener) -> None:
        self._listener = listener
        self._group.join([CHUNKS], self, followers={SERIES: CHUNKS})

    def topic_id(self, topic: str) -> str:
        return self._log.topic_id(topic)

    def poll(self, timeout_s: float, records_max: int) -> Polled:
        early_s = self._poll_at - self._clock.monotonic()
        if early_s > 0:
            self._clock.sleep(min(early_s, timeout_s))
            return Polled()
        try:
            self._start_over()
            events = self._group.poll(timeout_s, max_records=records_max, max_bytes=POLL_BYTES_MAX)
        except (Unavailable, Overloaded) as error:
            # The commits or `loaded` of an assignment could not be read: the group tries again.
            log.warning("partitions not to be had yet", reason=error.reason, error=error.message)
            now = self._clock.monotonic()
            self._refusal = error, self._refusal[1] if self._refusal else now
            self._poll_at = now + RETRY_S
            return Polled()
        self._refusal = None
        return _polled(events)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        for topic, partition in partitions:
            self._group.pause(topic, partition)

    def resume(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        for (topic, partition), next_offset in next_offsets.items():
            self._group.seek(topic, partition, next_offset)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        try:
            self._group.commit({at: LogPosition(p.next_offset, p.metadata) for at, p in positions.items()})
        except Unavailable as error:
            reason = "stale_member" if error.reason == "stale_member" else "unavailable"
            raise CommitFailed(error.message, reason=reason) from error

    def close(self) -> None:
        self._group.leave()

    # Calls of the group.

    def on_assigned(self, committed: Mapping[TopicPartition, LogPosition | None]) -> Mapping[TopicPartition, int]:
        numbers = {number for _, number in committed}
        zero = numbers - set(self._loaded(sorted(numbers)))
        anew = [place for place, position in committed.items() if position is None or place[1] in zero]
        starts = {place: Position(at.next_offset, at.metadata) for place, at in committed.items() if at is not None}
        starts.update(self._first_offsets(anew))
        self._begin_from_zero(zero)
        self._started_listener.on_assigned(starts)
        return {place: start.next_offset for place, start in starts.items()}

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self._started_listener.on_revoked(list(partitions))

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self._started_listener.on_lost(list(partitions))

    def _start_over(self) -> None:
        with self._lock:
            again = frozenset(self._again)
        if not again:
            return
        places = sorted(place for place in self._group.assigned() if place[1] in again)
        starts = self._first_offsets(places)
        self._begin_from_zero({number for _, number in places})
        if places:
            # Writes in flight belong to the lost history; their answers are ignored.
            self._started_listener.on_lost(places)
            self._started_listener.on_assigned(starts)
        for (topic, partition), start in starts.items():
            self._group.seek(topic, partition, start.next_offset)
        with self._lock:
            self._again -= again

    def _begin_from_zero(self, numbers: Collection[int]) -> None:
        ends = self._log.watermarks(CHUNKS, sorted(numbers)) if numbers else {}
        self._on_from_zero({number: marks.high for number, marks in ends.items()})
        if numbers:
            log.info("nothing is loaded of these partitions: starting from zero", partitions=sorted(numbers))

    @property
    def _started_listener(self) -> SourceListener:
        assert self._listener is not None, "partitions before start"
        return self._listener

    def _first_offsets(self, places: Collection[TopicPartition]) -> dict[TopicPartition, Position]:
        found: dict[TopicPartition, Position] = {}
        for topic in {topic for topic, _ in places}:
            numbers = sorted(number for name, number in places if name == topic)
            for number, marks in self._log.watermarks(topic, numbers).items():
                found[topic, number] = Position(marks.low)
        return found


def _polled(events: Iterable[Event]) -> Polled:
    records: list[Record] = []
    ends: dict[TopicPartition, int] = {}
    for event in events:
        if isinstance(event, EndOfLog):
            ends[event.topic, event.partition] = event.next_offset
        else:
            records += _records(event)
    return Polled(records, ends)


def _records(batch: RecordBatch) -> Iterator[Record]:
    """The records of a batch, as batch.record gives them, at a fraction of its cost."""
    topic, partition, keys, values = batch.topic, batch.partition, batch.keys, batch.values
    nulls = repeat(False) if batch.null_values is None else batch.null_values.tolist()
    columns = zip(
        batch.offsets.tolist(),
        batch.broker_ms.tolist(),
        pairwise(batch.key_starts.tolist()),
        pairwise(batch.value_starts.tolist()),
        nulls,
        repeat(()) if batch.headers is None else batch.headers,
        strict=False,  # Some of these iterators are endless.
    )
    for offset, broker_ms, (key_start, key_end), (start, end), null, headers in columns:
        value = None if null else values[start:end]
        yield Record(topic, partition, offset, keys[key_start:key_end], value, broker_ms, headers)
