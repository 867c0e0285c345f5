"""RegistrySource: a Source that copies each record to a wait topic, and acknowledges it once the copy is durable.

    registry = RegistrySource(KafkaSource(config, ["orders"]), producer, RegistryOptions("orders.wait"))
    ParallelConsumer(registry, ThreadExecutor(handle, 64), producer=producer, dead_letter_topic="orders.dlq")

Prepare: copies are sent in source order; a record is handed over once its copy is durable, in the same order. Post: a
null record with the copy's key once the record is finished, successfully or not. So a record that takes an hour does
not hold back the group's position. A killed process leaves copies only of its open records: the scanner sends those to
the dead letters when they expire.

At a clean shutdown, and in a rebalance, the position returns to the finished one, with the consumer's own map of
finished offsets above it, and every copy is ended: the next owner continues exactly there. Used by the consumer's
thread.
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial

from prometheus_client import REGISTRY

from tsdb.parallel_consumer.clock import Clock, SystemClock
from tsdb.parallel_consumer.errors import CommitFailed, ConsumerError, InvalidConfig
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.producer import OutRecord, Producer
from tsdb.parallel_consumer.record import Position, Record, TopicPartition
from tsdb.parallel_consumer.registry.metrics import RegistryMetrics
from tsdb.parallel_consumer.registry.partition_copies import CopyState, Entry, PartitionCopies
from tsdb.parallel_consumer.registry.wait_record import null_record, wait_copy, wait_key
from tsdb.parallel_consumer.source import Polled, PolledSource, Source, SourceListener

UNPOLLED_S_MAX = 1.0  # The broker needs a sign of life from the member, but a pause drops prefetched records.
# Time between polls of the source while copies are in flight, because their acknowledgements cannot wake it.
SETTLE_S = 0.005
AGAIN_S = 0.5
CLOSE_TRIES = 20  # Tries for the null records of a clean shutdown, AGAIN_S each.

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Options of a registry.

    topic: the wait topic: compacted, with at least as many partitions as the consumed topic. expiry_s: a record
    unfinished for this long after it was read becomes a dead letter. preparing_max: bound of the records that were read
    and not handed over, mostly because their copies are in flight. commit_interval_s: time between acknowledgements
    while nothing is finished.
    """

    topic: str
    expiry_s: float = 3_600.0
    preparing_max: int = 1_000
    commit_interval_s: float = 0.2

    def __post_init__(self) -> None:
        if not self.topic or self.expiry_s <= 0 or self.preparing_max < 1 or self.commit_interval_s <= 0:
            raise InvalidConfig(f"{self}: needs a topic, and all else above 0")


class RegistrySource:
    """Implements Source and SourceListener. It closes the inner source; the caller closes the producer."""

    def __init__(
        self,
        inner: Source,
        producer: Producer,
        options: RegistryOptions,
        *,
        metrics: RegistryMetrics | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._inner = inner
        self._producer = producer
        self._options = options
        self._metrics = metrics or RegistryMetrics(REGISTRY)
        self._clock = clock or SystemClock()
        self._log = LimitedLog(self._clock)
        self._listener: SourceListener | None = None
        self._parts: dict[TopicPartition, PartitionCopies] = {}
        self._paused: set[TopicPartition] = set()  # Paused by the consumer.
        self._paused_for_copies = False  # Too many copies are in flight.
        self._copy_paused: set[TopicPartition] = set()  # Paused because of it.
        self._returning: set[TopicPartition] = set()
        self._answers: deque[tuple[Entry | None, OutRecord, ConsumerError | None]] = deque()
        self._answered = threading.Event()
        self._again: deque[tuple[float, Entry | None, OutRecord]] = deque()
        self._preparing = 0
        self._posting = 0
        self._commit_at = 0.0
        self._polled_at = 0.0

    def start(self, listener: SourceListener) -> None:
        self._listener = listener
        self._inner.start(self)

    def check_drains(self, drains_s: Mapping[str, float]) -> None:
        if isinstance(self._inner, PolledSource):
            self._inner.check_drains(drains_s)

    def topic_id(self, topic: str) -> str:
        return self._inner.topic_id(topic)

    def poll(self, timeout_s: float, records_max: int) -> Polled:
        self._log.flush()
        self._settle()
        polled = self._read(timeout_s, records_max)
        for record in polled.records:
            self._prepare(record)
        for topic_partition, next_offset in polled.ends.items():
            if topic_partition in self._parts:
                self._parts[topic_partition].ends(next_offset)
        self._settle()
        self._acknowledge_if_due()
        return self._hand_over(records_max)

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        going = set(partitions) - self._paused
        self._paused |= going
        if going - self._copy_paused:
            self._inner.pause(going - self._copy_paused)

    def resume(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        # Records read and not handed over stay here, so the source resumes behind them.
        coming = self._paused & next_offsets.keys() & self._parts.keys()
        self._paused -= coming
        if self._paused_for_copies:
            self._copy_paused |= coming
        else:
            self._go_on(coming)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        unassigned = positions.keys() - self._parts.keys()
        if unassigned:
            raise CommitFailed(f"not assigned any more: {sorted(unassigned)}", reason="stale_member")
        parts = {topic_partition: self._parts[topic_partition] for topic_partition in positions}
        for topic_partition, position in positions.items():
            parts[topic_partition].reported = position
            self._post(parts[topic_partition].take_finished())
        self._commit_through(
            {part for topic_partition, part in parts.items() if topic_partition not in self._returning}
        )
        self._hand_back([part for topic_partition, part in parts.items() if topic_partition in self._returning])

    def close(self) -> None:
        self._inner.close()
        for _ in range(CLOSE_TRIES):
            self._settle(again_before=math.inf)
            # Acknowledgements come one by one: an attempt ends once all have come, or none for AGAIN_S.
            while self._posting and self._answered.wait(AGAIN_S):
                self._answered.clear()
                self._settle(again_before=-math.inf)
            if not self._posting:
                return
        log.warning("%d finished records keep their copies: their null records were not acknowledged", self._posting)

    # SourceListener, called by the inner source.

    def on_assigned(self, starts: Mapping[TopicPartition, Position]) -> None:
        for topic_partition, start in starts.items():
            self._parts[topic_partition] = PartitionCopies(
                topic_partition, start, self._inner.topic_id(topic_partition[0])
            )
        self._required_listener.on_assigned(starts)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._returning |= set(partitions)
        try:
            self._required_listener.on_revoked(partitions)
            self._hand_back(
                [self._parts[topic_partition] for topic_partition in partitions if topic_partition in self._parts]
            )
        except CommitFailed as error:
            log.warning("positions not returned, open records expire: %s", error.message)
        finally:
            self._returning -= set(partitions)
            self._forget(partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._required_listener.on_lost(partitions)
        self._forget(partitions)

    def _read(self, timeout_s: float, records_max: int) -> Polled:
        # The source reads only as far as the consumer can take records, because records that are open at a crash become
        # orphans.
        waiting = sum(part.waiting for part in self._parts.values())
        capacity = min(records_max, self._options.preparing_max) - waiting
        if self._paused_for_copies and waiting <= self._options.preparing_max // 2:
            self._paused_for_copies = False
            self._go_on(self._copy_paused - self._paused)
            self._copy_paused = set()
        if capacity <= 0 and not self._paused_for_copies:
            if self._clock.monotonic() - self._polled_at < UNPOLLED_S_MAX:
                self._answered.wait(min(timeout_s, SETTLE_S))
                self._answered.clear()
                return Polled()
            self._paused_for_copies, self._copy_paused = True, self._parts.keys() - self._paused
            self._inner.pause(self._copy_paused)
        self._polled_at = self._clock.monotonic()
        return self._inner.poll(min(timeout_s, SETTLE_S) if waiting else timeout_s, max(1, capacity))

    def _go_on(self, partitions: Collection[TopicPartition]) -> None:
        if partitions:
            self._inner.resume(
                {topic_partition: self._parts[topic_partition].read_to for topic_partition in partitions}
            )

    def _prepare(self, record: Record) -> None:
        part = self._parts.get(record.topic_partition)
        if part is None or record.offset < part.read_to:
            return  # The partition was removed, or the record is read again after a pause.
        entry = Entry(record, wait_key(part.topic_id, record))
        part.add(entry)
        self._preparing += 1
        now_ms = self._clock.now_ms()
        expires_at_ms = now_ms + round(self._options.expiry_s * 1000)
        self._send(entry, wait_copy(self._options.topic, entry.key, record, now_ms, expires_at_ms))

    def _hand_over(self, records_max: int) -> Polled:
        records: list[Record] = []
        ends: dict[TopicPartition, int] = {}
        for topic_partition, part in self._parts.items():
            if topic_partition in self._paused:
                continue
            records += part.hand_over(records_max - len(records))
            end = part.take_end()
            if end is not None:
                ends[topic_partition] = end
        return Polled(records, ends)

    def _send(self, entry: Entry | None, record: OutRecord) -> None:
        self._producer.send(record, partial(self._answer, entry, record))

    def _answer(self, entry: Entry | None, record: OutRecord, error: ConsumerError | None) -> None:
        """Called from any thread."""
        self._answers.append((entry, record, error))
        self._answered.set()

    def _settle(self, again_before: float | None = None) -> None:
        while self._answers:
            self._take(*self._answers.popleft())
        before = self._clock.monotonic() if again_before is None else again_before
        for _ in range(len(self._again)):  # Copies that fail again in this loop wait for the next call.
            if self._again[0][0] > before:
                break
            _, entry, record = self._again.popleft()
            if entry is not None and entry.dropped:
                # If it were sent now, the copy would come after its null record and stay in the wait topic without an
                # owner.
                self._preparing -= 1
            else:
                self._send(entry, record)

    def _take(self, entry: Entry | None, record: OutRecord, error: ConsumerError | None) -> None:
        if error is not None and (entry is None or error.reason != "record_too_large"):
            self._metrics.send_failures.inc()
            kind = "null record" if entry is None else "copy"
            text = "a %s was not taken by wait topic %s, partition %d (%s), and is sent again: %s"
            at = (record.topic, record.partition)
            self._log.log(logging.ERROR, f"wait_{error.reason}", at, text, kind, *at, error.reason, error.message)
            self._again.append((self._clock.monotonic() + AGAIN_S, entry, record))
        elif entry is None:
            self._posting -= 1
            self._metrics.posted.inc()
        else:
            self._preparing -= 1
            entry.copy = CopyState.DURABLE if error is None else CopyState.REFUSED
            (self._metrics.prepared if error is None else self._metrics.unregistered).inc()

    def _post(self, entries: Collection[Entry]) -> None:
        for entry in entries:
            if entry.copy is not CopyState.REFUSED:
                self._posting += 1
                self._send(None, null_record(self._options.topic, entry.record.partition, entry.key))

    def _commit_through(self, parts: Collection[PartitionCopies]) -> None:
        """Commit positions up to which records are finished or have a durable copy."""
        positions = {part.topic_partition: Position(part.through) for part in parts}
        reported = {
            part.topic_partition: position
            for part in parts
            if (position := positions[part.topic_partition]) != part.committed
        }
        if reported:
            self._commit_at = self._clock.monotonic() + self._options.commit_interval_s
            self._inner.commit(reported)
            for topic_partition, position in reported.items():
                self._parts[topic_partition].committed = position

    def _acknowledge_if_due(self) -> None:
        if self._clock.monotonic() < self._commit_at:
            return
        self._commit_at = self._clock.monotonic() + self._options.commit_interval_s
        try:
            self._commit_through(self._parts.values())
        except CommitFailed as error:
            self._log.log(logging.WARNING, "acknowledge", None, "not acknowledged yet: %s", error.message)

    def _hand_back(self, parts: Collection[PartitionCopies]) -> None:
        """Return unfinished records to the source, then end their copies. In this order a crash repeats records and
        loses none.
        """
        going = {part.topic_partition: part.reported for part in parts if part.reported != part.handed_back}
        if going:
            self._inner.commit(going)
        for part in parts:
            part.handed_back = part.reported
            rest = part.take_open()
            self._metrics.handed_back.inc(len(rest))
            self._post(rest)

    def _forget(self, partitions: Collection[TopicPartition]) -> None:
        for topic_partition in partitions:
            part = self._parts.pop(topic_partition, None)
            if part is not None:
                self._metrics.left_behind.inc(len(part.take_open()))
        self._paused -= set(partitions)
        self._copy_paused -= set(partitions)

    @property
    def _required_listener(self) -> SourceListener:
        assert self._listener is not None, "partitions before start"
        return self._listener
