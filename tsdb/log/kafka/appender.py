"""Appender: one producer at a time, with the thread that delivers its answers.

Every append gets one answer, whatever the producer does. A producer is replaced after an error that ends one, and when
an append has no answer long after its delivery timeout.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from tsdb.kafka_clients import new_producer
from tsdb.log.append_answers import append_failures_total, appends_total
from tsdb.log.interface import Appended, Headers, OnDone
from tsdb.log.kafka.clients import GRACE_S, PRODUCER, count_renewal, end_client
from tsdb.log.kafka.config import Config
from tsdb.log.kafka.errors import RETRY_AFTER_S, to_error
from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread, report_failure

logger = get_logger(__name__)

POLL_S = 1.0  # An answer ends a poll at once. A producer that is not used any more ends after its poll.
CLOSE_WITHIN_S = 5.0


@dataclass(slots=True)
class _Waiting:
    """An append without an answer. since: monotonic time."""

    place: str
    on_done: OnDone
    since: float


class KafkaAppender:
    """Thread-safe. Answers come on the thread `log-answers`, or on that of the watch; an immediate refusal comes on the
    caller's thread. Implements Watched."""

    def __init__(self, config: Config, delivery_timeout_s: float, clock: Clock) -> None:
        self._config = config
        self._lost_after_s = delivery_timeout_s + GRACE_S
        self._clock = clock
        # Guards the fields below. `produce` is called under it, because a producer that is replaced or closed gets no
        # record whose answer nobody would read. Callbacks run outside.
        self._changed = threading.Condition()
        self._numbers = count()
        self._waiting: dict[int, _Waiting] = {}  # Appends by their number, in order.
        self._answering: set[int] = set()  # Appends that were taken from these: their callbacks run.
        self._is_closed = False
        self._error: BaseException | None = None
        with self._changed:  # The thread of the producer reads the field that holds it.
            self._producer = self._start_producer_locked()

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
        place = f"topic {topic}, partition {partition}"
        with self._changed:
            self._check_open_locked(place)
            producer, number = self._producer, next(self._numbers)
            self._waiting[number] = _Waiting(place, on_done, self._clock.monotonic())
            try:
                producer.produce(
                    topic,
                    value,
                    key,
                    partition,
                    on_delivery=partial(self._on_delivery, number),
                    timestamp=timestamp_ms or 0,
                    headers=list(headers) or None,
                )
                return
            except BufferError as error:
                refusal: TsdbError = Overloaded(f"{place}: {error}", reason="queue_full", retry_after_s=1.0)
                cause: Exception = error
            except KafkaException as error:
                refusal, cause = to_error(error.args[0], place), error
            del self._waiting[number]
            if isinstance(cause, KafkaException) and cause.args[0].code() == KafkaError._FATAL:
                self._renew_locked("an error that ends a producer")
        raise _count(refusal) from cause

    def flush(self, timeout_s: float) -> None:
        """See Log.flush for the contract."""
        deadline = Deadline.after(timeout_s)
        with self._changed:
            until, producer = next(self._numbers), self._producer
        with suppress(KafkaException):  # The producer cannot go on. The answers follow.
            producer.flush(timeout_s)
        with self._changed:
            # Answers of a producer that was replaced come on other threads.
            self._changed.wait_for(partial(self._is_settled_locked, until), deadline.remaining())
            if self._error is not None:
                raise self._error
            left = self._left_locked(until)
        if left:
            raise Unavailable(f"{left} records were not answered within {timeout_s:g} s", reason="timeout")

    def close(self) -> None:
        """Send the waiting records within CLOSE_WITHIN_S. Answer the others with an error."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            producer = self._producer
        _end(producer)
        with self._changed:
            left = self._take_older_locked(float("inf"))
        self._answer_lost(left, "the log is closed", "log_closed")

    # Methods of Watched.

    def look(self) -> None:
        """Replace a producer that leaves an append without an answer, and answer for it."""
        with self._changed:
            if self._is_closed:
                return  # `close` answers what is left.
            lost = self._take_older_locked(self._clock.monotonic() - self._lost_after_s)
            if not lost:
                return
            self._renew_locked(f"no answer to {len(lost)} appends within {self._lost_after_s:g} s")
        self._answer_lost(lost, f"no answer within {self._lost_after_s:g} s", "timeout")

    def stalled(self) -> str:
        return ""  # A new producer is independent of the old one.

    def _check_open_locked(self, place: str) -> None:
        if self._error is not None:
            raise self._error
        if self._is_closed:
            raise _count(Unavailable(f"{place}: the log is closed", reason="log_closed"))

    def _is_settled_locked(self, until: int) -> bool:
        return self._error is not None or not self._left_locked(until)

    def _left_locked(self, until: int) -> int:
        """Number of appends without an answer, of those below this number."""
        return sum(number < until for numbers in (self._waiting, self._answering) for number in numbers)

    def _take_older_locked(self, than: float) -> list[tuple[int, _Waiting]]:
        """Take the appends from before this time that have no answer; the caller must now answer them."""
        numbers = []
        for number, waiting in self._waiting.items():
            if waiting.since >= than:
                break
            numbers.append(number)
        self._answering.update(numbers)
        return [(number, self._waiting.pop(number)) for number in numbers]

    def _answer_lost(self, lost: list[tuple[int, _Waiting]], why: str, reason: str) -> None:
        for number, waiting in lost:
            error = Unavailable(f"{waiting.place}: {why}", reason=reason, retry_after_s=RETRY_AFTER_S)
            self._answer(number, waiting, _count(error))

    def _renew_locked(self, why: str) -> None:
        count_renewal(PRODUCER, why)
        broken, self._producer = self._producer, self._start_producer_locked()
        end_client(lambda: _end(broken))

    def _start_producer_locked(self) -> Producer:
        producer = new_producer(self._config)
        new_thread(self._serve, "log-answers", producer).start()
        return producer

    def _serve(self, producer: Producer) -> None:
        """Deliver the answers of one producer, until another one is in use or the log is closed."""
        while True:
            try:
                producer.poll(POLL_S)
            except KafkaException as error:
                # Only an error that ends the producer, such as a right that it lacks. The answers to its records
                # follow, and the next append replaces it.
                logger.warning("the producer cannot go on", error=str(error))
            with self._changed:
                if self._is_closed or producer is not self._producer:
                    return

    def _on_delivery(self, number: int, error: KafkaError | None, message: Message) -> None:
        with self._changed:
            waiting = self._waiting.pop(number, None)
            if waiting is None:
                return  # The append was answered already.
            self._answering.add(number)
        self._answer(number, waiting, _result(error, message, waiting.place))

    def _answer(self, number: int, waiting: _Waiting, result: Appended | TsdbError) -> None:
        try:
            waiting.on_done(result)
        except BaseException as error:
            # A callback has a bug. The other answers must still be delivered; the next append raises the error.
            self._error = error
            report_failure(error, "log-answers")
        with self._changed:
            self._answering.discard(number)
            self._changed.notify_all()


def _end(producer: Producer) -> None:
    if _flush(producer):
        producer.purge()
        _flush(producer)


def _flush(producer: Producer) -> int:
    """Number of records that have no answer yet."""
    try:
        return producer.flush(CLOSE_WITHIN_S)
    except KafkaException:  # Raised once, by the call that first sees that the producer cannot go on.
        return producer.flush(CLOSE_WITHIN_S)


def _result(error: KafkaError | None, message: Message, place: str) -> Appended | TsdbError:
    if error is not None:
        return _count(to_error(error, place))
    partition, offset = message.partition(), message.offset()
    assert partition is not None, "an acknowledged record has a partition"
    if offset is None:
        # The broker has the batch from an earlier try, which is so old that the broker no longer knows the offset
        # (KIP-98).
        return _count(Unavailable(f"{place}: the log has the record and does not say where", reason="offset_unknown"))
    appends_total.inc()
    return Appended(partition, offset, message.timestamp()[1])


def _count(error: TsdbError) -> TsdbError:
    append_failures_total.labels(error.reason).inc()
    return error
