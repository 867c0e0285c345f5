"""Kafka transactions: consume, process and produce. The output of a handler appears together with the commit of its
record.

    source = TransactionalSource(KafkaSource(config, ["orders"]), {**brokers, "transactional.id": "billing-0"})
    ParallelConsumer(source, ThreadExecutor(source.producing(handle), 16), ...)

`handle` returns the records to produce. They are kept until a commit marks their record as finished, and are sent in
one transaction with that commit: a reader of committed records sees them once, even if the process ends in between.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from tsdb.parallel_consumer.clock import SystemClock
from tsdb.parallel_consumer.errors import CommitFailed
from tsdb.parallel_consumer.kafka.pending_output import PendingOutput, Produced
from tsdb.parallel_consumer.kafka.source import KafkaSource
from tsdb.parallel_consumer.kafka.transactor import Transactor
from tsdb.parallel_consumer.limited_log import LimitedLog
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Position, Record, TopicPartition
from tsdb.parallel_consumer.source import Polled, SourceListener


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
