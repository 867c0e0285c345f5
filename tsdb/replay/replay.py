"""Replay: applies records of the log to heads, one step at a time, on the caller's thread.

Guarantees: records are applied in offset order, each once; a record with an unknown series becomes visible only after
`series` was read to a high watermark taken after the record was fetched; a record of unknown version or of a broker
clock that is ahead stops its partition; a re-created topic stops all; lost offsets make a fresh head, never a skip. A
partition with a full memory waits alone. When the log does not answer, all partitions wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.log_record import STATUS_CORRUPT, STATUS_UNKNOWN_VERSION, DecodedRecords, decode_records
from tsdb.head.head import Applied
from tsdb.log.interface import METRICS, EndOfLog, Event, RecordBatch
from tsdb.model.clock import Clock
from tsdb.model.errors import LostOffsets, Overloaded, TsdbError, Unavailable, UnknownVersion, WrongTopic
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.replay.full_partitions import AGAIN_S, FullPartitions
from tsdb.replay.series_feed import Registry, SeriesFeed

CLOCK_AHEAD_MAX_MS = 5 * 60 * 1000  # A record further ahead of our clock means that a broker's clock is wrong.
SERIES_WAIT_S = 1.0  # Bounds a step; the next step reads the rest.
RETRY_S = 0.05  # Pause after an error of the log.
STOPPED_S = 0.25  # Length of a step of stopped partitions: bounds how long their owner takes to end.

log = get_logger(__name__)

records_total = counter("tsdb_replay_records_total", "Log records applied.")
samples_total = counter("tsdb_replay_samples_total", "Samples applied to heads.")
exemplars_total = counter("tsdb_replay_exemplars_total", "Exemplars applied to heads.")
ignored_samples_total = counter(
    "tsdb_replay_ignored_samples_total",
    "Samples in the log that no reader will see, by reason.",
    label="reason",
    values=("ahead", "unknown_series"),
)
bad_records_total = counter(
    "tsdb_replay_bad_records_total",
    "Log records that could not be applied, by reason.",
    label="reason",
    values=("corrupt", "unknown_version", "broker_clock_ahead"),
)

lost_offsets_total = counter(
    "tsdb_replay_lost_offsets_total", "Fresh starts of a partition because the log no longer has its next offset."
)


class RecordSource(Protocol):
    """Source of records: a LogReader, or a partition's share of a group's reads."""

    def poll(self, timeout_s: float, *, max_records: int) -> list[Event]:
        """See LogReader.poll for the contract."""

    def wake(self) -> None:
        """See LogReader.wake for the contract."""

    def seek(self, topic: str, partition: int, next_offset: int) -> None:
        """See LogReader.seek for the contract."""

    def pause(self, topic: str, partition: int) -> None:
        """See LogReader.pause for the contract."""

    def close(self) -> None:
        """Release the source. A second call does nothing."""


class RecordTarget(Registry, Protocol):
    """Receiver of the records: a head, or a stage with a head inside."""

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        """See Head.unknown_ids for the contract."""

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        """See Head.apply for the contract."""


AnyTarget = TypeVar("AnyTarget", bound=RecordTarget)


@dataclass(slots=True)
class PartitionProgress:
    """Progress of one partition's replay. stopped: the reason of a final stop, or empty."""

    next_offset: int
    applied_broker_ms: int | None = None
    stopped: str = ""
    stopped_message: str = ""
    records: int = 0
    samples: int = 0


@dataclass(frozen=True, slots=True)
class FreshStart(Generic[AnyTarget]):
    """A fresh start of one partition. target: an empty head. progress: the start of its replay. series_start: offset of
    the first announcement to read."""

    target: AnyTarget
    progress: PartitionProgress
    series_start: int


@dataclass(slots=True)
class StepCounts:
    """Counts of the records and samples that one step applied."""

    records: int = 0
    samples: int = 0


class Replay(Generic[AnyTarget]):
    """Applies the records of some partitions of the log to their heads.

    `heads` and `progress`: one per partition, where `source` begins at progress.next_offset. `renew(partition)` makes
    the fresh start after lost offsets. One thread makes all calls; any thread may read `progress`.
    """

    def __init__(
        self,
        source: RecordSource,
        heads: dict[int, AnyTarget],
        progress: dict[int, PartitionProgress],
        series: SeriesFeed,
        *,
        clock: Clock,
        renew: Callable[[int], FreshStart[AnyTarget]],
    ) -> None:
        self._heads = heads
        self._series = series
        self._clock = clock
        self._renew = renew
        self.progress = progress
        self._source = source
        self._pending: deque[Event] = deque()
        self._lost: dict[int, LostOffsets] = {}
        self._without_capacity = FullPartitions(clock)
        self._series_read = False
        self._waiting: TsdbError | None = Unavailable("series topic not read yet", reason="series_behind")

    def step(self, timeout_s: float, *, records_max: int) -> StepCounts:
        """Fetch once and apply the fetched records. Waits up to timeout_s for the first record; less while a partition
        waits for memory or for the log.

        A batch that cannot be applied because `series` is not readable stays pending, and nothing more is fetched until
        it is applied. A batch that does not fit into memory is dropped, and read again when it fits. The other
        partitions continue.
        """
        done = StepCounts()
        if all(progress.stopped for progress in self.progress.values()):
            self._clock.sleep(min(timeout_s, STOPPED_S))
            return done
        try:
            self._advance(timeout_s, records_max, done)
            self._waiting = None
        except Unavailable as error:
            self._wait(error, min(timeout_s, RETRY_S))
        except WrongTopic as error:
            for partition in self.progress:
                self._stop(partition, error)
        return done

    def wake(self) -> None:
        """End a step that waits for records. Any thread."""
        self._source.wake()

    def waiting_for(self, partition: int) -> TsdbError | None:
        """The error that holds up a partition at the moment; None when its records can be applied."""
        return self._waiting or self._without_capacity.error_of(partition)

    def series_next_offset(self, partition: int) -> int:
        """The first announcement that the partition's head lacks."""
        return self._series.next_offset(partition)

    def close(self) -> None:
        """Release the source and the series feed."""
        self._source.close()
        self._series.close()

    def _advance(self, timeout_s: float, records_max: int, done: StepCounts) -> None:
        if not self._series_read:
            self._read_series(timeout_s)
        self._offer_capacity()
        for partition in list(self._lost):
            self._start_again(partition)
        if not self._pending:
            self._pending.extend(self._fetch(self._fetch_s(timeout_s), records_max))
        # Called after the fetch, because the announcements of its records came before it.
        self._series.poll()
        while self._pending:
            self._apply(self._pending[0], done)
            self._pending.popleft()

    def _read_series(self, timeout_s: float) -> None:
        try:
            self._series.catch_up(list(self.progress), self._clock, timeout_s)
        except Overloaded as error:
            # Records of known series can still be applied. Dropped slices and ended series will free memory.
            log.warning("not all series fit in memory", error=error.message)
        self._series_read = True

    def _wait(self, error: TsdbError, timeout_s: float) -> None:
        if self._waiting is None or self._waiting.reason != error.reason:
            log.warning("replay waits", reason=error.reason, error=error.message)
        self._waiting = error
        self._clock.sleep(timeout_s)

    def _hold(self, partition: int, error: Overloaded) -> None:
        """Stop reading a partition until its head has capacity. Its batches after the first pending one are dropped and
        read again later, in order."""
        self._without_capacity.enter(partition, error)
        self._source.pause(METRICS, partition)
        first, *others = self._pending
        self._pending = deque([first, *(event for event in others if event.partition != partition)])

    def _offer_capacity(self) -> None:
        """Resume the partitions whose heads have capacity again."""
        for partition in self._without_capacity.due():
            try:
                self._heads[partition].memory.check_samples()
                self._series.check(partition)
            except Overloaded as error:
                self._without_capacity.enter(partition, error)
            else:
                self._without_capacity.leave(partition)
                self._source.seek(METRICS, partition, self.progress[partition].next_offset)

    def _fetch_s(self, timeout_s: float) -> float:
        """Longest time of a fetch, so that partitions that wait for memory are tried again in time."""
        due_s = self._without_capacity.due_in_s()
        if self._series.holds_back:
            due_s = AGAIN_S if due_s is None else min(due_s, AGAIN_S)
        return timeout_s if due_s is None else min(timeout_s, due_s)

    def _fetch(self, timeout_s: float, records_max: int) -> list[Event]:
        try:
            return self._source.poll(timeout_s, max_records=records_max)
        except LostOffsets as error:
            # Kept for a retry: the fresh start sends requests to the log, and they may fail.
            self._lost[int(error.metadata["partition"])] = error
            return []

    def _start_again(self, partition: int) -> None:
        fresh = self._renew(partition)
        error = self._lost.pop(partition)
        lost_offsets_total.inc()
        log.error("log lost offsets; starting the partition afresh", partition=partition, error=error.message)
        self._heads[partition] = fresh.target
        self.progress[partition] = fresh.progress
        self._series.restart(partition, fresh.target, fresh.series_start)
        self._without_capacity.leave(partition)
        self._source.seek(METRICS, partition, fresh.progress.next_offset)

    def _stop(self, partition: int, error: TsdbError) -> None:
        progress = self.progress[partition]
        if not progress.stopped:
            log.error("partition stopped", partition=partition, reason=error.reason, error=error.message)
        # The message is set first: a reader that sees the reason also reads the message.
        progress.stopped_message, progress.stopped = error.message, error.reason

    def _apply(self, event: Event, done: StepCounts) -> None:
        progress = self.progress[event.partition]
        if progress.stopped or event.partition in self._without_capacity:
            return
        if isinstance(event, EndOfLog):
            # Offsets at the end may belong to no record; without this they would count as lag for ever.
            progress.next_offset = max(progress.next_offset, event.next_offset)
            return
        batch, records, stop_error = self._usable(event)
        if len(batch.offsets):
            try:
                self._apply_usable(batch, records, progress, done)
            except Overloaded as error:
                self._hold(batch.partition, error)
                return
        if stop_error is not None:
            bad_records_total.labels(stop_error.reason).inc()
            self._stop(batch.partition, stop_error)

    def _usable(self, batch: RecordBatch) -> tuple[RecordBatch, DecodedRecords, TsdbError | None]:
        """The decoded records before the first that stops the partition, and the error of that one."""
        records = decode_records(batch.values, batch.value_starts)
        latest_ms = self._clock.now_ms() + CLOCK_AHEAD_MAX_MS
        if records.all_ok and batch.broker_ms.max(initial=latest_ms) <= latest_ms:
            return batch, records, None
        unknown = records.status == STATUS_UNKNOWN_VERSION
        bad = np.flatnonzero(unknown | (batch.broker_ms > latest_ms))
        if not len(bad):
            return batch, records, None
        first = int(bad[0])
        stop_error = _unknown_version(batch, first) if unknown[first] else _clock_ahead(batch, first)
        usable = batch.first(first)
        return usable, decode_records(usable.values, usable.value_starts), stop_error

    def _apply_usable(
        self, batch: RecordBatch, records: DecodedRecords, progress: PartitionProgress, done: StepCounts
    ) -> None:
        head = self._heads[batch.partition]
        if len(head.unknown_ids(records)):
            self._series.catch_up([batch.partition], self._clock, SERIES_WAIT_S)
        applied = head.apply(records, batch.offsets, batch.broker_ms)
        # Broker time is set first, so that a lag that is computed between these two lines is too high, never too low.
        progress.applied_broker_ms = int(batch.broker_ms[-1])
        progress.next_offset = int(batch.offsets[-1]) + 1
        self._count(records, applied, progress, done)

    def _count(self, records: DecodedRecords, applied: Applied, progress: PartitionProgress, done: StepCounts) -> None:
        count = len(records.status)
        records_total.inc(count)
        samples_total.inc(applied.samples)
        if applied.exemplars:
            exemplars_total.inc(applied.exemplars)
        if applied.ignored_ahead:
            ignored_samples_total.labels("ahead").inc(applied.ignored_ahead)
        if applied.unknown_samples:
            ignored_samples_total.labels("unknown_series").inc(applied.unknown_samples)
        if not records.all_ok:
            bad_records_total.labels("corrupt").inc(int((records.status == STATUS_CORRUPT).sum()))
        progress.records += count
        progress.samples += applied.samples
        done.records += count
        done.samples += applied.samples


def _unknown_version(batch: RecordBatch, index: int) -> TsdbError:
    return UnknownVersion(f"record of an unknown version: a newer writer is on the log; {_place(batch, index)}")


def _clock_ahead(batch: RecordBatch, index: int) -> TsdbError:
    return Unavailable(
        f"record is of {batch.broker_ms[index]} ms, over {CLOCK_AHEAD_MAX_MS} ms ahead of our clock: a broker's clock"
        f" or ours is wrong; {_place(batch, index)}",
        reason="broker_clock_ahead",
    )


def _place(batch: RecordBatch, index: int) -> str:
    return f"partition {batch.partition}, record_offset {batch.offsets[index]}"
