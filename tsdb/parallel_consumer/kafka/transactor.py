"""Kafka: a transactional producer: records and the positions of a group, all of them or none.

A transaction is short: it is begun when everything is known, and decided before `run` returns. One thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka import TopicPartition as KafkaPartition

from tsdb.parallel_consumer.errors import CommitFailed, ConsumerError, Fenced
from tsdb.parallel_consumer.kafka.errors import is_stale
from tsdb.parallel_consumer.kafka.library_log import with_logger
from tsdb.parallel_consumer.kafka.outlet import send_failed
from tsdb.parallel_consumer.kafka.settings import RECONNECTING
from tsdb.parallel_consumer.outlet import OutRecord
from tsdb.parallel_consumer.record import Partition, Position

TIMEOUT_S = 30.0
START_TIMEOUT_S = 5.0  # Of one try: the member is not ended by `close` meanwhile.
# Until a transaction that a killed member left open ends by itself, nobody may read the commits of its partitions.
DEFAULTS: Mapping[str, object] = {"transaction.timeout.ms": 10_000}
FENCED = frozenset({KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


class Transactor:
    """config: of the producer, at least bootstrap.servers and transactional.id.

    undecided: of the last run nobody knows whether it is durable; `settle` tells.
    """

    def __init__(self, config: Mapping[str, object]) -> None:
        self._id = config.get("transactional.id")
        self._producer: Any = Producer(
            with_logger({**RECONNECTING, **DEFAULTS, **config})
        )  # The library's types are not complete.
        self._abort_first = False
        self._refused: tuple[KafkaError, str] | None = None  # Why a record of the run is not taken, and its topic.
        self.undecided = False

    def start(self) -> None:
        """Take over the transactional id: what its last owner left open is ended, and that owner fenced.

        Raises CommitFailed (unavailable), Fenced.
        """
        try:
            self._producer.init_transactions(START_TIMEOUT_S)
        except KafkaException as error:
            raise self._told(error) from error

    def run(self, records: Iterable[OutRecord], positions: Mapping[Partition, Position], group: Any) -> None:
        """All of it is durable when it returns. group: the member's metadata, which the broker checks.

        Raises, and nothing is durable: CommitFailed (unavailable, stale_member), SendFailed (record_too_large),
        Fenced. Raises CommitFailed (undecided), and nobody knows: then `settle` comes next.
        """
        assert not self.undecided, "a transaction before the last one is decided"
        self._refused = None
        try:
            self._abort_if_left()
            self._producer.begin_transaction()
            self._abort_first = True
            self._send(records)
            offsets = [KafkaPartition(*place, at.next_offset, at.metadata) for place, at in positions.items()]
            self._producer.send_offsets_to_transaction(offsets, group, TIMEOUT_S)
            self._producer.flush(TIMEOUT_S)  # So that what is wrong with a record is known.
        except (KafkaException, BufferError) as error:
            raise self._aborted(error) from error
        if self._refused is not None:
            raise self._aborted(KafkaException(self._refused[0]))
        self.settle()

    def settle(self) -> None:
        """Commit: durable when it returns. Raises as run."""
        self.undecided = True
        try:
            self._producer.commit_transaction(TIMEOUT_S)
        except KafkaException as error:
            told = error.args[0]
            if told.retriable() and not told.fatal() and not told.txn_requires_abort():
                raise CommitFailed(f"transaction: {told}: not decided yet", reason="undecided") from error
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
        # Of a transaction that fails, the rest is purged: only the first says why.
        if error is not None and self._refused is None:
            self._refused = (error, message.topic() or "")

    def _aborted(self, error: KafkaException | BufferError) -> ConsumerError:
        """Abort; what to raise because of the error. One that ends the producer comes before all."""
        try:
            self._abort_if_left()
        except KafkaException as worse:
            # Else it is aborted before the next one, or by the coordinator when its time is over.
            if worse.args[0].fatal():
                return self._told(worse)
        if self._refused is not None and not self._is_fatal(error):
            failed = send_failed(*self._refused)
            if failed.reason == "record_too_large":
                return failed
        return self._told(error)

    def _abort_if_left(self) -> None:
        if self._abort_first:
            self._producer.abort_transaction(TIMEOUT_S)
            self._abort_first = False

    @staticmethod
    def _is_fatal(error: BaseException) -> bool:
        return isinstance(error, KafkaException) and bool(error.args[0].fatal())

    def _told(self, error: KafkaException | BufferError) -> ConsumerError:
        told = error.args[0]
        if not isinstance(error, KafkaException):
            return CommitFailed(f"transaction: {told}")
        text = f"transactional.id {self._id}: {told.str()} ({told.name()})"
        if told.code() in FENCED:
            # Brokers tell both in the same way.
            return Fenced(f"{text}: another producer took it, or a transaction took longer than transaction.timeout.ms")
        if told.fatal():
            return ConsumerError(text, reason="kafka")
        return CommitFailed(text, reason="stale_member" if is_stale(told) else "unavailable")
