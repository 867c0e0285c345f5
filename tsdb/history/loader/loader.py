"""Loader: writes the output of the chunk stage into history, and records its progress. It is the only writer of
history.

A parallel consumer of `chunks` and `series` ordered by pack, with many writes in flight. It owns no state: records that
are not committed are written again, which changes nothing. `start`, `close`, `join`, `abort`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType

from tsdb.codec.chunk.key import ProgressKey, WindowKey, decode_key
from tsdb.codec.chunk.marker import HoleRecord, decode_progress_marker
from tsdb.history.claims import RestoredClaim, reach, read_restored
from tsdb.history.interface import ChunkSink, Loaded
from tsdb.history.loader.errors import POLICY
from tsdb.history.loader.loaded_marks import GenerationRaise, LoadedMarks
from tsdb.history.loader.loading import Loading
from tsdb.history.loader.raises import Raises, replaced_total
from tsdb.history.loader.remembered import Remembered
from tsdb.history.loader.reporter import LoaderReporter
from tsdb.history.loader.source import LOADED_UNITS_MAX, LogSource, Offsets
from tsdb.history.writes import ROW_BYTES
from tsdb.log.chains import chain_of
from tsdb.log.interface import CHUNKS, CHUNKS_DLQ, METRICS, SERIES, Appended, Log
from tsdb.log.records import first_records
from tsdb.model import defaults
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, LostOffsets, TsdbError, Unavailable
from tsdb.model.meta import PART_BYTES_MAX
from tsdb.model.time_set import TimeSet
from tsdb.model.window import LONG_AGO_MS
from tsdb.ops.health import PartitionHealth
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import registry
from tsdb.parallel_consumer import (
    CallbackExecutor,
    ConsumerMetrics,
    Options,
    OutRecord,
    ParallelConsumer,
    Record,
    SendFailed,
    SpecialLane,
    TopicPartition,
)
from tsdb.parallel_consumer.producer import OnSent

GROUP = "loader"
# The group has separate commits, because files are loaded beside a history, not instead of it.
FILES_GROUP = "loader-parquet"
# Records of a poll. At least as many are read as may be in flight: no write begins during a poll, so free slots stay
# empty.
POLL_RECORDS_MIN = 128
DRAIN_S_MAX = 300.0  # A group expels members that do not poll for this long, and a drain polls nothing.
ALIVE_WITHIN_S = 120.0  # A step waits for at most one answer of log or history, and each has a shorter timeout.
CHUNKS_TRIMMED, SERIES_TRIMMED = "chunks_trimmed", "series_trimmed"
# Offset below which all records of a partition are finished; None when the partition is not assigned here.
Positions = Callable[[TopicPartition], int | None]

log = get_logger(__name__)
consumer_metrics = ConsumerMetrics(registry, "tsdb_loader_consumer_")


@dataclass(frozen=True, slots=True)
class LoaderOptions:
    """Options of a loader.

    group_id: loaders of one group share the work of one history. concurrency: writes in flight. inflight_bytes_max:
    bytes of the writes in flight, the bound of the store. buffer_bytes_max, buffer_records_max: bounds of what is read
    and not yet in history. remembered_max: number of announcements that are known to be in history. drain_s: a stop or
    a revoke waits this long for writes in flight. accept_replay: ignore commits whose metadata cannot be trusted.
    """

    time_set: TimeSet
    group_id: str = GROUP
    part_bytes_max: int = PART_BYTES_MAX
    concurrency: int = defaults.LOAD_CONCURRENCY
    inflight_bytes_max: int = defaults.HISTORY_INFLIGHT_BYTES_MAX
    buffer_bytes_max: int = defaults.LOAD_BUFFER_BYTES_MAX
    buffer_records_max: int = 50_000
    remembered_max: int = defaults.LOAD_SERIES_REMEMBERED_MAX
    commit_interval_s: float = 0.2
    drain_s: float = 20.0
    accept_replay: bool = False

    def consumer_options(self) -> Options:
        """Options of the parallel consumer. Raises ConfigMismatch (loader_options)."""
        # A write beyond the capacity of the store would block the whole consumer, so no such write begins.
        running_bytes_max = self.inflight_bytes_max - 2 * ROW_BYTES * self.concurrency
        if running_bytes_max < self.part_bytes_max:
            raise ConfigMismatch(
                f"{self.inflight_bytes_max} bytes in flight do not hold a part of {self.part_bytes_max} bytes and"
                f" {self.concurrency} writes",
                reason="loader_options",
            )
        if self.drain_s >= DRAIN_S_MAX:
            raise ConfigMismatch(
                f"drain_s={self.drain_s:g} is refused: the group expels a member that drains for {DRAIN_S_MAX:g} s, and"
                f" it could commit nothing more; lower drain_s",
                reason="loader_options",
            )
        return Options(
            concurrency=self.concurrency,
            running_bytes_max=running_bytes_max,
            records_max=self.buffer_records_max,
            bytes_max=self.buffer_bytes_max,
            poll_records_max=max(POLL_RECORDS_MIN, self.concurrency),
            commit_interval_s=self.commit_interval_s,
            drain_s=self.drain_s,
            rebalance_drain_s=self.drain_s,
            accept_replay=self.accept_replay,
            metadata_units_max=Options().metadata_units_max - LOADED_UNITS_MAX,
        )


class Loader:
    """One member of the group of loaders. The caller closes the log and the store."""

    def __init__(
        self, log_: Log, store: ChunkSink, options: LoaderOptions, clock: Clock, *, seed: int | None = None
    ) -> None:
        self._log = log_
        self._store = store
        self._clock = clock
        self._time_set = options.time_set
        self._topic_id = log_.topic_id(METRICS)
        self._restored: dict[
            int, RestoredClaim
        ] = {}  # State of the partitions that start now; used by the consumer's thread.
        self._source = LogSource(
            log_,
            options.group_id,
            self._loaded_partitions,
            self._restored_offsets,
            lambda partition: self._raises.last(partition),
            self._from_zero,
            clock,
        )
        self._raises = Raises(store, self._source.start_over, lambda: self._reporter.wake())
        self._marks = LoadedMarks(store, self._raises, GenerationRaise(log_, clock))
        self._remembered = Remembered(options.remembered_max)
        loading = Loading(
            store,
            self._marks,
            self._remembered,
            options.time_set,
            options.part_bytes_max,
            chain_of("loader", clock.now_ms),
        )
        self._consumer = ParallelConsumer(
            self._source,
            CallbackExecutor(loading),
            order=lane_of,
            policy=POLICY,
            options=options.consumer_options(),
            producer=LogProducer(log_),
            dead_letter_topic=CHUNKS_DLQ,
            gate=self._gate,
            metrics=consumer_metrics,
            clock=clock,
            randomness=random.Random(seed),
            name="loader",
        )
        self._reporter = LoaderReporter(
            log_, lambda: self._consumer.status, self._source.refusal, self._source.is_spare, self._marks, clock
        )

    def start(self) -> None:
        """Join the group and begin to load. Returns at once."""
        self._consumer.start()
        self._reporter.start()

    def close(self) -> None:
        """Stop reading. Writes in flight continue."""
        self._consumer.close()

    def join(self, timeout_s: float) -> bool:
        """Wait, after `close`, until all records in flight are in history and committed. Raises the error that broke
        the loader.
        """
        deadline = Deadline.after(timeout_s)
        if not self._consumer.join(deadline.remaining()):
            return False
        self._reporter.close()
        return self._reporter.join(deadline.remaining())

    def abort(self) -> None:
        """Drop the records in flight. The next loader writes them again."""
        self._reporter.close()
        self._consumer.abort()

    def failure(self) -> BaseException | None:
        """The error that broke the loader; None while it works."""
        return self._consumer.failure() or self._reporter.failure()

    def health(self) -> dict[int, PartitionHealth]:
        """Health of each assigned partition: progress, lag, and the reason of a stop."""
        return self._reporter.health

    def problem(self) -> tuple[str, str]:
        """(reason, message) of the problem that holds up all partitions, also after it has cost all partitions; empty
        without a problem."""
        problem = self._reporter.problem
        return problem.reason, problem.message

    def stalled(self) -> str:
        """The reason why the loader is not alive; empty while it is. An outage of history does not count."""
        silent_s = self._consumer.silent_s()
        return f"the loader has been in one step for {silent_s:.0f} s" if silent_s > ALIVE_WITHIN_S else ""

    def _loaded_partitions(self, partitions: Collection[int], committed: Mapping[int, Loaded]) -> Collection[int]:
        found = self._store.loaded(self._topic_id)
        for number, one in committed.items():
            if one.topic_id == self._topic_id and number in found and reach(found[number]) < reach(one):
                replaced_total.inc()
                log.error("history was replaced by an older copy: starting from zero", partition=number)
                self._raises.note_older(found.pop(number))
        self._raises.begin(partitions, found)
        return found.keys() & set(partitions)

    def _restored_offsets(self, partitions: Collection[int]) -> Offsets:
        self._restored = {
            number: one for number, one in read_restored(self._store, self._log).items() if number in partitions
        }
        offsets = {(CHUNKS, number): one.chunks_offset for number, one in self._restored.items()}
        return offsets | {(SERIES, number): one.series_offset for number, one in self._restored.items()}

    def _from_zero(self, ends: Mapping[int, int], restored: Offsets) -> None:
        if ends:
            holes = trimmed_holes(self._log, ends, self._time_set, self._clock.now_ms(), restored)
            series = self._log.watermarks(SERIES, sorted(ends))
            self._remembered.forget()
            self._store.forget()
            self._raises.begin(ends, {})
            series_ends = {partition: marks.high for partition, marks in series.items()}
            claims = {number: one.claim for number, one in self._restored.items() if (CHUNKS, number) in restored}
            older = self._raises.take_older(ends)
            self._marks.begin(ends, holes, self._clock.monotonic(), series_ends, restored=claims, older=older)

    def _gate(self, record: Record) -> bool:
        return marker_is_due(record, self._consumer.position)


def lane_of(record: Record) -> Hashable:
    """The lane of a record: the pack of a chunk or hole, or the key of another ordered record.

    Records of one pack keep their order, and a progress marker comes after all records before it.
    """
    if record.topic != CHUNKS:
        return SpecialLane.UNORDERED if record.key is None else record.key
    try:
        key = decode_key(record.key or b"")
    except TsdbError:
        return record.key or b""
    if isinstance(key, ProgressKey):
        return SpecialLane.BARRIER
    return SpecialLane.UNORDERED if isinstance(key, WindowKey) else key.pack_id


def marker_is_due(record: Record, positions: Positions) -> bool:
    """Whether `series` is loaded up to a marker's series_end_offset. True for a record that is not a valid marker."""
    try:
        marker = decode_progress_marker(record.value or b"")
    except TsdbError:
        return True
    passed = positions((SERIES, record.partition))
    return passed is not None and passed >= marker.series_end_offset


class LogProducer:
    """tsdb.parallel_consumer.Producer that appends to the log. Thread-safe.

    A dead letter goes to the partition number of its source.
    """

    def __init__(self, log: Log) -> None:
        self._log = log

    def send(self, record: OutRecord, on_sent: OnSent) -> None:
        try:
            self._log.append(
                record.topic,
                record.partition,
                record.value,
                key=record.key,
                headers=record.headers,
                on_done=partial(_answer, on_sent),
            )
        except TsdbError as error:
            _answer(on_sent, error)


def _answer(on_sent: OnSent, answer: Appended | TsdbError) -> None:
    if isinstance(answer, Appended):
        on_sent(None)
        return
    reason = "record_too_large" if answer.reason == "record_too_large" else "unavailable"
    on_sent(SendFailed(answer.message, reason=reason))


def trimmed_holes(
    log: Log,
    partitions: Collection[int],
    times: TimeSet,
    now_ms: int,
    restored: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> dict[int, list[HoleRecord]]:
    """Holes for the records that a start from zero can no longer load, by partition. restored: offsets below which
    history has all records already. Raises Unavailable.

    All samples of a chunk are older than its record's broker time, so trimmed chunks hold only samples from before the
    first retained record. A series is announced at most a window before each of its samples.
    """
    longest = ((CHUNKS, CHUNKS_TRIMMED, 0), (SERIES, SERIES_TRIMMED, times.window_ms + times.ahead_ms))
    holes: dict[int, list[HoleRecord]] = {}
    for topic, reason, after_ms in longest:
        for partition, (low, first_ms) in _trimmed(log, topic, partitions, restored).items():
            # A topic that was trimmed completely has no record with a time.
            end_ms = (now_ms if first_ms is None else first_ms) + after_ms
            holes.setdefault(partition, []).append(HoleRecord(partition, 0, LONG_AGO_MS, end_ms, reason, low))
    return holes


def _trimmed(
    log: Log, topic: str, partitions: Collection[int], restored: Mapping[TopicPartition, int]
) -> dict[int, tuple[int, int | None]]:
    """(low watermark, broker time of the first record) of each partition that is trimmed above what was restored."""
    found = log.watermarks(topic, sorted(partitions))
    marks = {number: mark for number, mark in found.items() if mark.low > restored.get((topic, number), 0)}
    try:
        firsts = first_records(log, topic, {number: mark.low for number, mark in marks.items() if mark.low < mark.high})
    except LostOffsets as error:
        raise Unavailable(f"topic {topic} is being trimmed: {error.message}", reason="log_unavailable") from error
    return {
        number: (mark.low, first.broker_ms if (first := firsts.get(number)) else None) for number, mark in marks.items()
    }
