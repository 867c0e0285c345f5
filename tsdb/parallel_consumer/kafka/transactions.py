"""Kafka transactions: consume, process and produce. The output of a handler appears together with the commit of its
record.

    source = TransactionalSource(KafkaSource(config, ["orders"]), {**brokers, "transactional.id": "billing-0"})
    ParallelConsumer(source, ThreadExecutor(source.producing(handle), 16), ...)

`handle` returns the records to produce. They are kept until a commit marks their record as finished, and are sent in
one transaction with that commit: a reader of committed records sees them once, even if the process ends in between.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from tsdb.parallel_consumer.clock import SystemClock
from tsdb.parallel_consumer.errors import CommitFailed
from tsdb.parallel_consumer.kafka.source import KafkaSource
from tsdb.parallel_consumer.kafka.transactor import Transactor
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.offsets.metadata import decode_metadata
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Position, Record, TopicPartition
from tsdb.parallel_consumer.source import Polled, SourceListener

Produced = Mapping[TopicPartition, Mapping[int, list[OutRecord]]]


class TransactionalSource:
    """Implements AtomicSource and SourceListener. config: settings of the producer, at least bootstrap.servers and
    transactional.id, which is unique to each member and stays the same over restarts. Dead letters are outside of the
    transactions.

    Raises Fenced from poll, commit and write: another member took the transactional id, and this one must end.

    """

    def __init__(self, inner: KafkaSource, config: Mapping[str, object]) -> None:
        self._inner = inner
        self._transactor = Transactor(config)
        self._listener: SourceListener | None = None
        self._pending_output = PendingOutput()
        self._started = False
        self._log = LimitedLog(SystemClock())
        self._under_way: Produced = {}  # Output of the last transaction, while its result is not decided.

    def producing(self, handler: Callable[[Record], Iterable[OutRecord]]) -> Callable[[Record], None]:
        """Wrap the handler for an executor. If a record is tried again, the output of the last attempt counts."""
        return self._pending_output.producing(handler)

    def start(self, listener: SourceListener) -> None:
        self._listener = listener
        self._inner.start(self)

    def check_drains(self, drains_s: Mapping[str, float]) -> None:
        self._inner.check_drains(drains_s)

    def topic_id(self, topic: str) -> str:
        return self._inner.topic_id(topic)

    def poll(self, timeout_s: float, records_max: int) -> Polled:
        return self._inner.poll(timeout_s, records_max) if self._fenced_others(timeout_s) else Polled()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        self._inner.pause(partitions)

    def resume(self, next_offsets: Mapping[TopicPartition, int]) -> None:
        self._inner.resume(next_offsets)

    def commit(self, positions: Mapping[TopicPartition, Position]) -> None:
        if self._transactor.undecided:
            self._transactor.settle()
            self._pending_output.forget(self._under_way)
        topic_id = self._inner.topic_id
        self._under_way = {
            topic_partition: self._pending_output.finished(topic_partition, at, topic_id(topic_partition[0]))
            for topic_partition, at in positions.items()
        }
        out = [record for output in self._under_way.values() for records in output.values() for record in records]
        self._run(out, positions)
        self._pending_output.forget(self._under_way)

    def write(self, records: Sequence[OutRecord], positions: Mapping[TopicPartition, Position]) -> None:
        if self._transactor.undecided:
            self._transactor.settle()
        else:
            self._run(records, positions)

    def close(self) -> None:
        self._inner.close()

    # SourceListener, called by the inner source.

    def on_assigned(self, starts: Mapping[TopicPartition, Position]) -> None:
        self._pending_output.open(starts)
        self._required_listener.on_assigned(starts)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        try:
            self._required_listener.on_revoked(partitions)
        finally:
            self._pending_output.close(partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._pending_output.close(partitions)
        self._required_listener.on_lost(partitions)

    def _fenced_others(self, timeout_s: float) -> bool:
        """Whether the transactional id is taken over; nothing is read before."""
        if not self._started and self._inner.found(timeout_s):
            try:
                self._transactor.start()
            except CommitFailed as error:
                self._log.log(logging.WARNING, "transactor", None, "waiting: %s", error.message)
            else:
                self._started = True
        return self._started

    def _run(self, records: Sequence[OutRecord], positions: Mapping[TopicPartition, Position]) -> None:
        unassigned = positions.keys() - self._inner.owned
        if unassigned:
            raise CommitFailed(f"not assigned any more: {sorted(unassigned)}", reason="stale_member")
        self._inner.check_topics()
        self._transactor.run(records, positions, self._inner.group_metadata())

    @property
    def _required_listener(self) -> SourceListener:
        assert self._listener is not None, "partitions before start"
        return self._listener


class PendingOutput:
    """Records produced by handlers whose input no commit covers yet, by partition and assignment. Thread-safe.

    Partitions are opened when assigned, and closed when revoked or lost. Output of a handler that outlives its
    assignment is dropped: the next owner of the partition, even the same member, handles the record again.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards all below; no other lock is taken under it.
        self._by_partition: dict[TopicPartition, dict[int, list[OutRecord]]] = {}

    def open(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Partitions were assigned: start empty."""
        with self._lock:
            self._by_partition.update({topic_partition: {} for topic_partition in topic_partitions})

    def close(self, topic_partitions: Collection[TopicPartition]) -> None:
        """Partitions were removed: drop their output."""
        with self._lock:
            for topic_partition in topic_partitions:
                self._by_partition.pop(topic_partition, None)

    def producing(self, handler: Callable[[Record], Iterable[OutRecord]]) -> Callable[[Record], None]:
        """Wrap the handler for an executor. If a record is tried again, the output of the last attempt counts."""

        def handle(record: Record) -> None:
            with self._lock:
                # The assignment that is current when the record begins.
                output = self._by_partition.get(record.topic_partition)
            out = list(handler(record))
            if output is not None:
                with self._lock:
                    output[record.offset] = out

        return handle

    def finished(self, topic_partition: TopicPartition, at: Position, topic_id: str) -> dict[int, list[OutRecord]]:
        """Output of records that this position marks as finished, offsets ascending."""
        runs = decode_metadata(at.next_offset, at.metadata, topic_id).finished.tolist()
        with self._lock:
            output = sorted(self._by_partition.get(topic_partition, {}).items())
        return dict(_within(output, at.next_offset, runs))

    def forget(self, produced: Produced) -> None:
        """Drop output that is durable now."""
        with self._lock:
            for topic_partition, records in produced.items():
                output = self._by_partition.get(topic_partition, {})
                for offset in records:
                    output.pop(offset, None)


def _within(
    output: list[tuple[int, list[OutRecord]]], next_offset: int, runs: list[list[int]]
) -> Iterator[tuple[int, list[OutRecord]]]:
    at = 0
    for offset, records in output:
        while at < len(runs) and runs[at][1] <= offset:
            at += 1
        if offset < next_offset or (at < len(runs) and runs[at][0] <= offset):
            yield offset, records
