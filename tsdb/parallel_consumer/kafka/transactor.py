"""Transactor: stores records and group positions together or not at all, with a transactional producer.

A transaction is short: it begins when all its content is known, and is decided before `run` returns. One thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.kafka_clients import new_producer
from tsdb.parallel_consumer.errors import CommitFailed, ConsumerError, Fenced
from tsdb.parallel_consumer.kafka.errors import is_stale
from tsdb.parallel_consumer.kafka.library_log import with_logger
from tsdb.parallel_consumer.kafka.producer import send_failed
from tsdb.parallel_consumer.kafka.settings import RECONNECTING
from tsdb.parallel_consumer.producer import OutRecord
from tsdb.parallel_consumer.record import Position, TopicPartition

TIMEOUT_S = 30.0
START_TIMEOUT_S = 5.0  # Timeout of each attempt, because `close` cannot end the member meanwhile.
# A transaction left open by a killed member blocks reads of its partitions' commits until this timeout.
DEFAULTS: Mapping[str, object] = {"transaction.timeout.ms": 10_000}
FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


class Transactor:
    """config: the config of the producer, at least bootstrap.servers and transactional.id.

    undecided: whether the last run is durable is unknown; `settle` decides it.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._id = config.get("transactional.id")
        self._producer: Any = new_producer(
            with_logger({**RECONNECTING, **DEFAULTS, **config})
        )  # The library's types are not complete.
        self._abort_first = False
        self._refused: tuple[KafkaError, str] | None = None  # Why a record of the run was refused, and its topic.
        self.undecided = False

    def start(self) -> None:
        """Take over the transactional id: end the open transaction of its last owner, and fence that owner.

        Raises CommitFailed (unavailable), Fenced.
        """
        try:
            self._producer.init_transactions(START_TIMEOUT_S)
        except KafkaException as error:
            raise self._to_error(error) from error

    def run(self, records: Iterable[OutRecord], positions: Mapping[TopicPartition, Position], group: Any) -> None:
        """All of it is durable on return. group: the member's metadata, which the broker checks.

        Raises CommitFailed (unavailable, stale_member), SendFailed (record_too_large) or Fenced: nothing is durable.
        Raises CommitFailed (undecided): the result is unknown, and `settle` must come next.
        """
        assert not self.undecided, "a transaction before the last one is decided"
        self._refused = None
        try:
            self._abort_if_left()
            self._producer.begin_transaction()
            self._abort_first = True
            self._send(records)
            offsets = [
                KafkaPartition(*topic_partition, at.next_offset, at.metadata)
                for topic_partition, at in positions.items()
            ]
            self._producer.send_offsets_to_transaction(offsets, group, TIMEOUT_S)
            self._producer.flush(TIMEOUT_S)  # Collects the errors of all records before the commit.
        except (KafkaException, BufferError) as error:
            raise self._aborted(error) from error
        if self._refused is not None:
            raise self._aborted(KafkaException(self._refused[0]))
        self.settle()

    def settle(self) -> None:
        """Commit: durable on return. Raises as run."""
        self.undecided = True
        try:
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            kafka_error = error.args[0]
            if kafka_error.retriable() and not kafka_error.fatal() and not kafka_error.txn_requires_abort():
                raise CommitFailed(f"transaction: {kafka_error}: not decided yet", reason="undecided") from error
            self.undecided = False
            raise self._aborted(error) from error
        self.undecided = self._abort_first = False

    def _send(self, records: Iterable[OutRecord]) -> None:
        for record in records:
            try:
                self._produce(record)
            except BufferError:
                self._producer.flush(TIMEOUT_S)
                self._produce(record)

    def _produce(self, record: OutRecord) -> None:
        try:
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=self._on_delivery,
            )
        except KafkaException as error:
            self._refused = (error.args[0], record.topic)
            raise

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        # When a transaction fails its remaining records are purged: only the first error has the cause.
        if error is not None and self._refused is None:
            self._refused = (error, message.topic() or "")

    def _aborted(self, error: KafkaException | BufferError) -> ConsumerError:
        """Abort; returns the error to raise. A fatal error of the producer takes precedence."""
        try:
            self._abort_if_left()
        except KafkaException as worse:
            # Otherwise it is aborted before the next transaction, or by the coordinator after its timeout.
            if worse.args[0].fatal():
                return self._to_error(worse)
        if self._refused is not None and not self._is_fatal(error):
            failed = send_failed(*self._refused)
            if failed.reason == "record_too_large":
                return failed
        return self._to_error(error)

    def _abort_if_left(self) -> None:
        if self._abort_first:
            self._producer.abort_transaction(TIMEOUT_S)
            self._abort_first = False

    @staticmethod
    def _is_fatal(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and bool(error.args[0].fatal())

    def _to_error(self, error: KafkaException | BufferError) -> ConsumerError:
        kafka_error = error.args[0]
        if not isinstance(error, KafkaException):
            return CommitFailed(f"transaction: {kafka_error}")
        text = f"transactional.id {self._id}: {kafka_error.str()} ({kafka_error.name()})"
        if kafka_error.code() in FENCED:
            # Brokers report both causes in the same way.
            return Fenced(f"{text}: another producer took it, or a transaction took longer than transaction.timeout.ms")
        if kafka_error.fatal():
            return ConsumerError(text, reason="kafka")
        return CommitFailed(text, reason="stale_member" if is_stale(kafka_error) else "unavailable")
