"""Source over a Group: reads `chunks`, shared among loaders, with `series` of the same partitions.

A partition without `loaded` starts from zero, even if it has commits: history may have been dropped, and only its
content counts. Two others do the same: a partition whose `loaded` is lower than the value in its commits, because an
older copy of history was restored; and an assigned one after `start_over`. Restored rows make it start at their offsets
instead of zero. One thread, that of the consumer.

Metadata of a commit: that of the consumer, and behind a separator the value of `loaded` that history had then.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from itertools import pairwise, repeat

from tsdb.history.claims import reach
from tsdb.history.interface import Loaded
from tsdb.log.interface import CHUNKS, SERIES, EndOfLog, Event, Group, Log, RecordBatch, TopicPartition
from tsdb.log.interface import Position as LogPosition
from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.parallel_consumer import CommitFailed, Polled, Position, Record, SourceListener

POLL_BYTES_MAX = 16 << 20
RETRY_S = 1.0  # Time between two tries while the start of a partition cannot be found.
RETRY_LOOK_S = 0.1  # The part of this wait in one poll, which bounds how long a close waits.

log = get_logger(__name__)

LINGER_S = 0.1  # Chunks that are written at one moment arrive together.

SEPARATOR = "|loaded "  # A character that neither alphabet of the consumer's metadata has.
LOADED_COMMIT_S = 2.0  # Nearly every raise of `loaded` is followed by a commit of the consumer, which is soon enough.
LOADED_UNITS_MAX = 160  # Length of separator, topic id and two numbers.

Offsets = Mapping[TopicPartition, int]
# Returns the partitions that have `loaded`, and the highest value that their commits know of. Raises Unavailable or
# Overloaded while history does not answer.
LoadedPartitions = Callable[[Collection[int], Mapping[int, Loaded]], Collection[int]]
# Returns the offsets of restored rows in these partitions, which do not have `loaded`. Raises as LoadedPartitions.
RestoredOffsets = Callable[[Collection[int]], Offsets]
# Called at each start with the partitions that start from zero or from restored offsets, the high watermarks of
# `chunks` at that moment, and the restored offsets.
OnFromZero = Callable[[Mapping[int, int], Offsets], None]
# Returns the value of `loaded` that history has of a partition; None without one.
LastLoaded = Callable[[int], Loaded | None]


class LogSource:
    """tsdb.parallel_consumer.Source and tsdb.log.interface.GroupListener. The caller closes the log."""

    def __init__(
        self,
        log_: Log,
        group_id: str,
        loaded: LoadedPartitions,
        restored: RestoredOffsets,
        last_loaded: LastLoaded,
        on_from_zero: OnFromZero,
        clock: Clock,
    ) -> None:
        self._log = log_
        self._group: Group = log_.group(group_id, linger_s=LINGER_S)
        self._loaded = loaded
        self._restored = restored
        self._last_loaded = last_loaded
        self._on_from_zero = on_from_zero
        self._clock = clock
        self._poll_at = clock.monotonic()
        self._listener: SourceListener | None = None
        self._lock = threading.Lock()  # Guards _again; no other lock is taken under it.
        self._again: set[int] = set()
        self._committed: dict[int, Position] = {}  # Last commits of `chunks`, without the value of `loaded`.
        self._loaded_in: dict[int, Loaded | None] = {}  # The value of `loaded` in these commits.
        self._differs_since: float | None = None
        self._refusal: tuple[TsdbError, float] | None = None

    def refusal(self, patience_s: float) -> TsdbError | None:
        """The last error, if no poll has succeeded for patience_s, so that partitions cannot be taken. Any thread may
        call it."""
        refusal = self._refusal
        if refusal is None or self._clock.monotonic() - refusal[1] < patience_s:
            return None
        return refusal[0]

    def is_spare(self) -> bool:
        """See Group.is_spare for the contract."""
        return self._group.is_spare()

    def start_over(self, partitions: Collection[int]) -> None:
        """Start those of these partitions that are assigned from zero with the next poll. Any thread may call it."""
        with self._lock:
            self._again.update(partitions)
        self.wake()

    def wake(self) -> None:
        """See WakeableSource for the contract."""
        self._group.wake()

    def start(self, listener: SourceListener) -> None:
        self._listener = listener
        self._group.join([CHUNKS], self, followers={SERIES: CHUNKS})

    def topic_id(self, topic: str) -> str:
        return self._log.topic_id(topic)

    def poll(self, timeout_s: float, records_max: int) -> Polled:
        early_s = self._poll_at - self._clock.monotonic()
        if early_s > 0:
            self._clock.sleep(min(early_s, timeout_s, RETRY_LOOK_S))
            return Polled()
        try:
            self._start_over()
            self._commit_loaded()
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
            self._group.commit(self._with_loaded(positions))
        except Unavailable as error:
            reason = "stale_member" if error.reason == "stale_member" else "unavailable"
            raise CommitFailed(error.message, reason=reason) from error
        self._note_committed({at[1]: one for at, one in positions.items() if at[0] == CHUNKS})

    def close(self) -> None:
        self._commit_loaded(at_once=True)
        self._group.leave()

    # Calls of the group.

    def on_assigned(self, committed: Mapping[TopicPartition, LogPosition | None]) -> Mapping[TopicPartition, int]:
        numbers = {number for _, number in committed}
        found = {place: _split(at, place[1]) for place, at in committed.items() if at is not None}
        known: dict[int, Loaded] = {}
        for (_, number), (_, loaded) in found.items():
            if loaded is not None and (number not in known or reach(known[number]) < reach(loaded)):
                known[number] = loaded
        zero = numbers - set(self._loaded(sorted(numbers), known))
        self._committed.update({number: one for (topic, number), (one, _) in found.items() if topic == CHUNKS})
        self._loaded_in.update({number: known.get(number) for number in numbers})
        anew = [place for place in committed if place not in found or place[1] in zero]
        starts = {place: position for place, (position, _) in found.items()}
        restored = self._restored(sorted(zero)) if zero else {}
        starts.update(self._first_offsets(anew, restored))
        self._begin_from_zero(zero, restored)
        self._started_listener.on_assigned(starts)
        return {place: start.next_offset for place, start in starts.items()}

    def on_revoked(self, partitions: Iterable[TopicPartition]) -> None:
        self._forget(partitions := list(partitions))
        self._started_listener.on_revoked(partitions)

    def on_lost(self, partitions: Iterable[TopicPartition]) -> None:
        self._forget(partitions := list(partitions))
        self._started_listener.on_lost(partitions)

    def _start_over(self) -> None:
        with self._lock:
            again = frozenset(self._again)
        if not again:
            return
        places = sorted(place for place in self._group.assigned() if place[1] in again)
        numbers = {number for _, number in places}
        restored = self._restored(sorted(numbers)) if numbers else {}
        starts = self._first_offsets(places, restored)
        self._begin_from_zero(numbers, restored)
        if places:
            # Writes in flight belong to the lost history; their answers are ignored.
            self._started_listener.on_lost(places)
            self._started_listener.on_assigned(starts)
        for (topic, partition), start in starts.items():
            self._group.seek(topic, partition, start.next_offset)
        with self._lock:
            self._again -= again

    def _begin_from_zero(self, numbers: Collection[int], restored: Offsets) -> None:
        ends = self._log.watermarks(CHUNKS, sorted(numbers)) if numbers else {}
        self._on_from_zero({number: marks.high for number, marks in ends.items()}, restored)
        if numbers:
            log.info(
                "nothing is loaded of these partitions: starting from zero, or from restored rows",
                partitions=sorted(numbers),
                restored=sorted({number for _, number in restored}),
            )

    # Encodes the value of `loaded` in commits.

    def _with_loaded(self, positions: Mapping[TopicPartition, Position]) -> dict[TopicPartition, LogPosition]:
        found = {}
        for at, position in positions.items():
            loaded, metadata = self._last_loaded(at[1]), position.metadata
            if loaded is not None:
                metadata += f"{SEPARATOR}{loaded.topic_id} {loaded.position} {loaded.emitted_through_ms}"
            found[at] = LogPosition(position.next_offset, metadata)
        return found

    def _note_committed(self, positions: Mapping[int, Position]) -> None:
        self._committed.update(positions)
        self._loaded_in.update({number: self._last_loaded(number) for number in positions})

    def _forget(self, partitions: Iterable[TopicPartition]) -> None:
        for _, number in partitions:
            self._committed.pop(number, None)

    def _commit_loaded(self, *, at_once: bool = False) -> None:
        """Commit again where `loaded` has changed since the last commit, as at the end of a load from zero."""
        differ = {
            (CHUNKS, number): position
            for number, position in self._committed.items()
            if self._last_loaded(number) not in (None, self._loaded_in.get(number))
        }
        now = self._clock.monotonic()
        if not differ:
            self._differs_since = None
            return
        self._differs_since = self._differs_since or now
        if not at_once and now - self._differs_since < LOADED_COMMIT_S:
            return
        try:
            self._group.commit(self._with_loaded(differ))
        except (Unavailable, Overloaded) as error:
            log.debug("loaded not committed; trying again", reason=error.reason, error=error.message)
            self._differs_since = now
            return
        self._note_committed({number: position for (_, number), position in differ.items()})

    @property
    def _started_listener(self) -> SourceListener:
        assert self._listener is not None, "partitions before start"
        return self._listener

    def _first_offsets(self, places: Collection[TopicPartition], restored: Offsets) -> dict[TopicPartition, Position]:
        found: dict[TopicPartition, Position] = {}
        for topic in {topic for topic, _ in places}:
            numbers = sorted(number for name, number in places if name == topic)
            for number, marks in self._log.watermarks(topic, numbers).items():
                since = restored.get((topic, number), marks.low)
                found[topic, number] = Position(min(max(since, marks.low), marks.high))
        return found


def _split(committed: LogPosition, partition: int) -> tuple[Position, Loaded | None]:
    """The consumer's position, and the value of `loaded` that history had then."""
    metadata, _, text = committed.metadata.partition(SEPARATOR)
    topic_id, *numbers = text.split(" ")
    try:
        loaded = Loaded(topic_id, partition, *map(int, numbers)) if text else None
    except (ValueError, TypeError):
        # The commit was not written by a loader of this product. The consumer checks its metadata by its own rules.
        loaded = None
    return Position(committed.next_offset, metadata), loaded


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
