"""A Kafka producer that sends dead letters and requeued records. One thread polls for acknowledgements."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException, Message

from tsdb.kafka_clients import new_producer
from tsdb.parallel_consumer.errors import ConsumerError, InvalidConfig, SendFailed
from tsdb.parallel_consumer.kafka.errors import TOPIC_GONE
from tsdb.parallel_consumer.kafka.library_log import with_logger
from tsdb.parallel_consumer.kafka.settings import producer_settings
from tsdb.parallel_consumer.kafka.topics import TopicLookup
from tsdb.parallel_consumer.producer import OnSent, OutRecord

SERVE_S = 0.1
FLUSH_S = 10.0

_TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE, KafkaError.INVALID_MSG_SIZE})


class KafkaProducer:
    """Implements TopicProducer. config: settings of the client library, at least bootstrap.servers. A context manager.

    create_topics: a missing topic is created at its lookup, with the brokers' defaults.
    Raises InvalidConfig for settings that contradict it.

    """

    def __init__(self, config: Mapping[str, object], *, create_topics: bool = False) -> None:
        self._config = dict(config)
        self._create_topics = create_topics
        self._lookup_lock = threading.Lock()  # Guards the lookups: consumers may share a producer.
        self._lookups: dict[str, TopicLookup] = {}
        settings: Any = with_logger(producer_settings(config))  # The library's types are not complete.
        try:
            self._producer: Any = new_producer(settings)
        except KafkaException as error:
            raise InvalidConfig(
                f"the client library refuses the settings: {error.args[0].str()}", reason="setting"
            ) from error
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._serve, name="producer", daemon=True)
        self._thread.start()

    def send(self, record: OutRecord, on_sent: OnSent) -> None:
        def on_delivery(error: KafkaError | None, message: Message) -> None:
            on_sent(None if error is None else send_failed(error, record.topic))

        try:
            self._producer.produce(
                record.topic,
                record.value,
                record.key,
                partition=record.partition,
                headers=list(record.headers),
                on_delivery=on_delivery,
            )
        except KafkaException as error:
            on_sent(send_failed(error.args[0], record.topic))
        except BufferError as error:
            on_sent(SendFailed(f"the producer's queue is full: {error}"))

    def partitions_of(self, topic: str) -> int | None:
        with self._lookup_lock:
            lookup = self._lookups.setdefault(topic, TopicLookup(self._config, [topic]))
            try:
                found = lookup.answer(0.0)
            except ConsumerError as error:
                del self._lookups[topic]
                if error.reason != "topic_gone" or not self._create_topics:
                    raise
                lookup.create(topic)
                return None
        return None if found is None else found[topic].partitions

    def failure(self) -> BaseException | None:
        """The error of a callback, which is a bug: a record may wait for its acknowledgement for ever."""
        return self._error

    def close(self) -> None:
        """Wait for records in flight, at most FLUSH_S. A second call does nothing."""
        if not self._closing.is_set():
            self._closing.set()
            self._thread.join()
            self._producer.flush(FLUSH_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _serve(self) -> None:
        while not self._closing.is_set():
            try:
                self._producer.poll(SERVE_S)
            except BaseException as error:  # A callback raised it; other acknowledgements must still come.
                self._error = error


def send_failed(error: KafkaError, topic: str) -> SendFailed:
    """Convert an error of the library."""
    text, code = f"topic {topic}: {error.str()} ({error.name()})", error.code()
    if code in _TOO_LARGE:
        return SendFailed(text, reason="record_too_large")
    if code in TOPIC_GONE:
        return SendFailed(f"{text}: create the topic, or give it more partitions", reason="no_topic")
    return SendFailed(text)
