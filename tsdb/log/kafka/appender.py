"""Appender: one producer, and the thread that delivers its answers."""

from __future__ import annotations

import threading
from functools import partial

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tsdb.log.append_metrics import append_failures_total, appends_total
from tsdb.log.interface import Appended, Headers, OnDone
from tsdb.log.kafka.config import Config
from tsdb.log.kafka.errors import to_error
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.threads import new_thread, report_failure

POLL_S = 0.1
CLOSE_WITHIN_S = 5.0

log = get_logger(__name__)

producer_renewals_total = counter(
    "tsdb_log_producer_renewals_total", "Producers replaced after an error that ends one, such as a lost sequence."
)


class KafkaAppender:
    """Thread-safe. Answers come on the thread `log-answers`; an immediate refusal comes on the caller's thread."""

    def __init__(self, config: Config) -> None:
        self._config = config
        self._lock = threading.Lock()  # Guards the change of producer.
        self._producer = Producer(config)
        self._closing = threading.Event()
        self._error: BaseException | None = None
        self._thread = new_thread(self._run, "log-answers")
        self._thread.start()

    def append(
        self,
        topic: str,
        partition: int,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
        on_done: OnDone,
    ) -> None:
        """See Log.append; `topic` is Kafka's name, with the prefix."""
        self._check_open(topic)
        place = f"topic {topic}, partition {partition}"
        producer = self._producer
        try:
            producer.produce(
                topic,
                value,
                key,
                partition,
                on_delivery=partial(_answer, on_done, place),
                timestamp=timestamp_ms or 0,
                headers=list(headers) or None,
            )
        except BufferError as error:
            raise _count(Overloaded(f"{place}: {error}", reason="queue_full", retry_after_s=1.0)) from error
        except KafkaException as error:
            if error.args[0].code() == KafkaError._FATAL:
                self._renew(producer)
            raise _count(to_error(error.args[0], place)) from error

    def flush(self, timeout_s: float) -> None:
        """See Log.flush for the contract."""
        left = self._producer.flush(timeout_s)
        if self._error is not None:
            raise self._error
        if left:
            raise Unavailable(f"{left} records were not answered within {timeout_s:g} s", reason="timeout")

    def close(self) -> None:
        """Send the waiting records within CLOSE_WITHIN_S; answer the others with an error."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._thread.join()
        _end(self._producer)

    def _check_open(self, topic: str) -> None:
        if self._error is not None:
            raise self._error
        if self._closing.is_set():
            raise _count(Unavailable(f"topic {topic}: the log is closed", reason="log_closed"))

    def _renew(self, broken: Producer) -> None:
        with self._lock:
            if self._producer is not broken:
                return
            producer_renewals_total.inc()
            log.warning("producer replaced after a fatal error")
            self._producer = Producer(self._config)
        _end(broken)

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                self._producer.poll(POLL_S)
            except BaseException as error:
                # A bug in a callback. The other answers must still be delivered; the next append raises the error.
                self._error = error
                report_failure(error, "log-answers")


def _end(producer: Producer) -> None:
    if producer.flush(CLOSE_WITHIN_S):
        producer.purge()
        producer.flush(CLOSE_WITHIN_S)


def _answer(on_done: OnDone, place: str, error: KafkaError | None, message: Message) -> None:
    if error is not None:
        on_done(_count(to_error(error, place)))
        return
    partition, offset = message.partition(), message.offset()
    assert partition is not None, "an acknowledged record has a partition"
    if offset is None:
        # The broker has the batch from an earlier try, so long ago that it no longer knows the offset (KIP-98).
        on_done(_count(Unavailable(f"{place}: the log has the record and does not say where", reason="offset_unknown")))
        return
    appends_total.inc()
    on_done(Appended(partition, offset, message.timestamp()[1]))


def _count(error: TsdbError) -> TsdbError:
    append_failures_total.labels(error.reason).inc()
    return error
