"""Intake: decides when the source is polled, and keeps records back so that no bound is exceeded.

At the bound of all records or bytes nothing is polled; polling restarts once half of the bound is free. A partition
whose map of finished offsets could outgrow a commit is paused alone. So are partitions that use most of the bound while
another has no records left (SharedBound): a stuck partition must not stop a healthy one. When the stop lasts, all
partitions are paused and the source is polled all the same: the broker needs a sign of life from the member, and the
member must see a rebalance. While records wait for a slot, polls get only a small share of the time: more records would
help nothing, and slots freed during a poll stay empty.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from operator import itemgetter

from tsdb.parallel_consumer.errors import InvalidConfig
from tsdb.parallel_consumer.flow.admission import Admission
from tsdb.parallel_consumer.flow.read_capacity import ReadCapacity
from tsdb.parallel_consumer.offsets.metadata import map_bytes_max
from tsdb.parallel_consumer.offsets.partition import PartitionState
from tsdb.parallel_consumer.record import Record, TopicPartition
from tsdb.parallel_consumer.scheduling.environment import Environment
from tsdb.parallel_consumer.scheduling.task import Task
from tsdb.parallel_consumer.source import ColumnSource, Polled, PolledColumns, Source

IDLE_S = 10.0  # A partition without a record for this long is idle: no other is paused for it.
CHECK_EVERY_S = 0.005  # Time between checks of which partitions may be read while none may, because a check visits all.
UNPOLLED_S_MAX = 1.0  # A pause drops prefetched records, so short stops do not pause.
BUSY_PAUSE = 10  # While there is enough to do: the time between polls, in multiples of the last poll's duration.

_topic_partition_of = itemgetter(0, 1)
_key_of = itemgetter(3)
_value_of = itemgetter(4)


class Intake:
    """`records`, `size`: records read and not finished, and their bytes, over all partitions."""

    def __init__(
        self,
        env: Environment,
        source: Source,
        partitions: Mapping[TopicPartition, PartitionState],
        admission: Admission,
    ) -> None:
        self._source = source
        self._partitions = partitions
        self._options = env.options
        self._metrics = env.metrics
        self._clock = env.clock
        self._admission = admission
        self._poll_source = self._column_poll(source) if admission.columns else source.poll
        self._map_bytes_max = map_bytes_max(env.options.metadata_units_max)
        self._capacity = ReadCapacity(partitions, env.options)
        self._full = False
        self._full_at = 0.0
        self._check_at = 0.0
        self._polled_at = env.clock.monotonic()
        self._poll_took_s = 0.0
        self._left_over = False  # The inline handler reached its time limit before the end of the backlog.
        self.records = 0
        self.size = 0

    def wants_poll(self, not_within_s: float) -> bool:
        """Whether to poll now. not_within_s: time after the last poll in which another one is not urgent; 0: it is
        urgent."""
        unpolled_s = self._unpolled_s()
        if unpolled_s < not_within_s:
            return False
        if self._left_over or not self._open():
            pause_s = UNPOLLED_S_MAX
        elif not_within_s:
            pause_s = min(max(not_within_s, BUSY_PAUSE * self._poll_took_s), UNPOLLED_S_MAX)
        else:
            pause_s = 0.0
        return unpolled_s >= pause_s

    def poll(self, timeout_s: float) -> bool:
        """Read as much as the bounds allow. Returns whether any record came. Waits up to timeout_s for the first
        one."""
        if not self._open():
            return self._poll_closed()
        self._resume()
        capacity = self._capacity.records()
        # With several partitions, one must not get all remaining capacity in one poll.
        return self._take(
            timeout_s, max(1, min(self._options.poll_records_max, capacity if self._alone else capacity // 2))
        )

    def finished(self, task: Task) -> None:
        """Uncount a finished task."""
        self.records -= task.count
        self.size -= task.size

    def passed(self, part: PartitionState, records: Sequence[Record]) -> None:
        """Uncount finished records that never became a task."""
        size = part.unfinished_bytes if len(records) == part.unfinished else size_of(records)
        self.records -= len(records)
        self.size -= size
        part.unfinished -= len(records)
        part.unfinished_bytes -= size

    def forget(self, part: PartitionState) -> None:
        """Uncount everything read from a removed partition."""
        self.records -= part.unfinished
        self.size -= part.unfinished_bytes

    def admit_backlog(self) -> bool:
        """Admit records that wait, as far as they fit now. Returns whether any was admitted."""
        self._left_over = False
        moved = False
        for part in self._partitions.values():
            if (part.backlog or part.columns) and not part.draining:
                moved |= self._admit_fitting(part)
        return moved

    @property
    def _alone(self) -> bool:
        return len(self._partitions) < 2

    def _open(self) -> bool:
        """Whether more may be read. A poll only lowers the free capacity, and `_check_bounds` runs after each poll."""
        if self._full and (not self.records or self._clock.monotonic() >= self._check_at):
            self._check_bounds()
        return not self._full

    def _check_bounds(self) -> None:
        """Stop reading at a bound, until half of it is free or a partition runs dry."""
        now = self._clock.monotonic()
        self._check_at = now + CHECK_EVERY_S
        self._take_back()
        if not self.records:
            # When no record is unfinished, reading is always allowed, however small the bounds are.
            self._full = False
        elif self._full:
            starving = self._pause_over_quota()
            self._full = self._capacity.records() <= 0 or not (starving or self._capacity.half_free())
        elif self._capacity.records() <= 0:
            self._full, self._full_at = True, now

    def _take_back(self) -> None:
        for part in self._capacity.coming_back():
            part.over_quota_records = 0

    def _pause_over_quota(self) -> bool:
        """Pause partitions over their quota while another runs dry; whether one does."""
        if self._alone or not self.records or not any(map(self._is_waiting, self._capacity.starving())):
            return False
        over_quota = self._capacity.over_quota()
        for part in over_quota:
            part.over_quota_records = part.unfinished
        self._pause(part for part in over_quota if not part.paused)
        return True

    def _is_waiting(self, part: PartitionState) -> bool:
        now = self._clock.monotonic()
        # While nothing is read, arrivals cannot be seen.
        return now - part.arrived_at < IDLE_S or (self._full and now - self._full_at >= UNPOLLED_S_MAX)

    def _unpolled_s(self) -> float:
        return self._clock.monotonic() - self._polled_at

    def _poll_closed(self) -> bool:
        self._pause(part for part in self._partitions.values() if not part.paused)
        return self._take(0.0, 1)

    @staticmethod
    def _column_poll(source: Source) -> Callable[[float, int], PolledColumns]:
        if not isinstance(source, ColumnSource):
            raise InvalidConfig(f"{type(source).__name__} does not support columns")
        return source.poll_columns

    def _take(self, timeout_s: float, records_max: int) -> bool:
        began_at = self._clock.monotonic()
        polled = self._poll_source(timeout_s, records_max)
        self._polled_at = self._clock.monotonic()
        arrived = self._take_polled(polled)
        # The wait for records does not count as work.
        self._poll_took_s = 0.0 if timeout_s else self._clock.monotonic() - began_at
        return arrived

    def _take_polled(self, polled: Polled | PolledColumns) -> bool:
        arrived = self._take_records(polled) if isinstance(polled, Polled) else self._take_columns(polled)
        for topic_partition, next_offset in polled.ends.items():
            part = self._partitions.get(topic_partition)
            if part is not None:
                part.ended = next_offset
                part.end()
        self._pause(part for part in self._partitions.values() if part.full and not part.paused)
        if arrived:
            self._pause_over_quota()
        self._check_bounds()
        return arrived

    def _take_records(self, polled: Polled) -> bool:
        for topic_partition, of_partition in groupby(polled.records, key=_topic_partition_of):
            part, records = self._partitions.get(topic_partition), list(of_partition)
            if part is None or part.draining:
                continue  # The partition was removed.
            if records[0].offset < part.read_to:
                # These records are read again after a pause.
                records = [record for record in records if record.offset >= part.read_to]
            if records:
                part.backlog.extend(records)
                self._count_in(part, records[-1].offset, len(records), size_of(records))
        return bool(polled.records)

    def _take_columns(self, polled: PolledColumns) -> bool:
        for columns in polled.columns:
            part = self._partitions.get(columns.topic_partition)
            if part is None or part.draining:
                continue
            first = int(columns.offsets.searchsorted(part.read_to))
            if first < len(columns):
                fresh = columns.part(first, len(columns)) if first else columns
                part.columns.append(fresh)
                self._count_in(part, int(fresh.offsets[-1]), len(fresh), fresh.size)
        return bool(polled.columns)

    def _count_in(self, part: PartitionState, last_offset: int, count: int, size: int) -> None:
        part.read_to = last_offset + 1
        self._metrics.read.inc(count)
        self.records += count
        self.size += size
        part.unfinished += count
        part.unfinished_bytes += size
        part.record_bytes, part.arrived_at = size // count, self._clock.monotonic()
        self._admit_fitting(part)

    def _admit_fitting(self, part: PartitionState) -> bool:
        before = len(part.backlog) + len(part.columns)
        if part.columns:
            self._admit_columns(part)
        elif part.backlog:
            self._admit_records(part)
        part.end()
        return len(part.backlog) + len(part.columns) < before

    def _admit_records(self, part: PartitionState) -> None:
        backlog = part.backlog
        if self._fits(part, backlog[0].offset, backlog[-1].offset, len(backlog)):
            if self._admission.run_inline(part):
                self._left_over = True
                return
            part.backlog = deque()
            self._admission.admit(part, backlog)
        while part.backlog and part.tracker.admits(part.backlog[0].offset, self._map_bytes_max):
            self._admission.admit(part, (part.backlog.popleft(),))
        part.full = bool(part.backlog)

    def _admit_columns(self, part: PartitionState) -> None:
        while part.columns:
            columns = part.columns[0]
            rows = len(columns)
            while rows > 1 and not self._fits(part, int(columns.offsets[0]), int(columns.offsets[rows - 1]), rows):
                rows //= 2
            part.full = rows == 1 and not part.tracker.admits(int(columns.offsets[0]), self._map_bytes_max)
            if part.full:
                return
            part.columns.popleft()
            if rows < len(columns):
                part.columns.appendleft(columns.part(rows, len(columns)))
            self._admission.admit_columns(part, columns.part(0, rows))

    def _fits(self, part: PartitionState, first: int, last: int, count: int) -> bool:
        return part.tracker.admits_block(first, last, count, self._map_bytes_max)

    def _pause(self, parts: Iterable[PartitionState]) -> None:
        going = list(parts)
        if not going:
            return
        self._source.pause([part.topic_partition for part in going])
        self._metrics.pauses.inc(len(going))
        for part in going:
            part.paused = True

    def _resume(self) -> None:
        self._take_back()
        # Require half of the map's capacity, because a pause for each record would cost a fetch each time.
        coming = [
            part
            for part in self._partitions.values()
            if part.paused
            and not (part.over_quota_records or part.backlog or part.columns)
            and part.tracker.admits(part.read_to, self._map_bytes_max // 2)
        ]
        if coming:
            self._source.resume({part.topic_partition: part.read_to for part in coming})
            for part in coming:
                part.paused = False


def size_of(records: Sequence[Record]) -> int:
    """Bytes of keys and values."""
    keys, values = map(_key_of, records), map(_value_of, records)
    return sum(map(len, filter(None, keys))) + sum(map(len, filter(None, values)))
