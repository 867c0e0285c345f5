"""Answers of a producer, with a fake producer whose answers the test sets."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
from confluent_kafka import OFFSET_INVALID, TIMESTAMP_LOG_APPEND_TIME, KafkaError, KafkaException, Message

from support.servers.logs import wait_until
from tsdb.log.interface import METRICS, Appended
from tsdb.log.kafka import appender
from tsdb.log.kafka.appender import KafkaAppender
from tsdb.log.kafka.clients import GRACE_S
from tsdb.model.clock import ManualClock
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.threads import watched_threads

DELIVERY_S = 10.0

OnDelivery = Callable[[KafkaError | None, Message], None]


class FakeProducer:
    """Answers records in order: each with its offset, of those given."""

    offsets: tuple[int, ...] = ()
    is_deaf = False  # No answer comes, whatever is waited for.
    is_fatal = False  # Refuses every record for good.
    reports_fatal = False  # The next poll raises the error that ends it.
    made: ClassVar[list[FakeProducer]] = []

    def __init__(self, config: object) -> None:
        self._waiting: list[OnDelivery] = []
        self._answered = 0
        self._lock = threading.Lock()  # As the library, any thread may poll.
        self.is_deaf, self.is_fatal = FakeProducer.is_deaf, FakeProducer.is_fatal
        self.made.append(self)

    def produce(self, *arguments: Any, on_delivery: OnDelivery, **options: Any) -> None:
        if self.is_fatal:
            raise KafkaException(KafkaError(KafkaError._FATAL))
        self._waiting.append(on_delivery)

    def poll(self, timeout: float) -> None:
        time.sleep(0.001)  # As a producer that waits for answers.
        if self.reports_fatal:
            self.reports_fatal = False
            raise KafkaException(KafkaError(KafkaError._FATAL))
        while (taken := self._take()) is not None:
            offset, on_delivery = taken
            at = (TIMESTAMP_LOG_APPEND_TIME, 1_000)
            on_delivery(None, Message(topic=METRICS, partition=3, offset=offset, timestamp=at))

    def _take(self) -> tuple[int, OnDelivery] | None:
        with self._lock:
            if self.is_deaf or not self._waiting:
                return None
            self._answered += 1
            return self.offsets[self._answered - 1], self._waiting.pop(0)

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return len(self._waiting)

    def purge(self) -> None:
        """A deaf producer answers nothing, not even this."""


def test_a_stored_record_without_an_offset_is_retryable_and_the_next_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker answers so for a batch that it stored at an earlier attempt and whose offset it no longer knows."""
    monkeypatch.setattr(FakeProducer, "offsets", (7, OFFSET_INVALID, 9))
    monkeypatch.setattr(appender, "new_producer", FakeProducer)
    answers: list[Appended | TsdbError] = []
    made = KafkaAppender({}, 10.0, ManualClock())
    for _ in range(3):
        made.append(METRICS, 3, b"v", key=None, headers=(), timestamp_ms=None, on_done=answers.append)
    wait_until(lambda: len(answers) == 3)
    made.close()
    first, unknown, last = answers
    assert (first, last) == (Appended(3, 7, 1_000), Appended(3, 9, 1_000))
    assert isinstance(unknown, Unavailable)
    assert unknown.reason == "offset_unknown"


def test_a_callback_that_fails_fails_the_process_and_the_next_answer_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProducer, "offsets", (7, 8))
    monkeypatch.setattr(appender, "new_producer", FakeProducer)
    answers: list[Appended | TsdbError] = []
    broken = RuntimeError("broken")

    def fail(_answer: Appended | TsdbError) -> None:
        raise broken

    with watched_threads() as failures:
        made = KafkaAppender({}, 10.0, ManualClock())
        for on_done in (fail, answers.append):
            made.append(METRICS, 3, b"v", key=None, headers=(), timestamp_ms=None, on_done=on_done)
        wait_until(lambda: len(answers) == 1)
        made.close()
    assert failures.failure() is broken


class Answers:
    """Appends to an appender over fake producers, with their answers in order of arrival."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(FakeProducer, "offsets", tuple(range(100)))
        monkeypatch.setattr(FakeProducer, "made", [])
        monkeypatch.setattr(appender, "new_producer", FakeProducer)
        self.clock = ManualClock()
        self.appender = KafkaAppender({}, DELIVERY_S, self.clock)
        self.found: list[Appended | TsdbError] = []

    def append(self) -> None:
        self.appender.append(METRICS, 3, b"v", key=None, headers=(), timestamp_ms=None, on_done=self.found.append)


def test_an_append_without_an_answer_gets_one_and_the_producer_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProducer, "is_deaf", True)
    answers = Answers(monkeypatch)
    (deaf,) = FakeProducer.made
    answers.append()
    answers.clock.sleep(DELIVERY_S + GRACE_S - 0.5)
    answers.append()
    answers.appender.look()
    assert answers.found == [], "its delivery may take so long"
    monkeypatch.setattr(FakeProducer, "is_deaf", False)
    answers.clock.sleep(1.0)
    answers.appender.look()
    (lost,) = answers.found
    assert isinstance(lost, Unavailable)
    assert (lost.reason, lost.retry_after_s) == ("timeout", 1.0)
    assert len(FakeProducer.made) == 2
    answers.append()
    wait_until(lambda: len(answers.found) == 2)
    assert answers.found[1] == Appended(3, 0, 1_000)
    deaf.is_deaf = False  # Its end delivers the late answers: one append is answered already.
    deaf.poll(0.0)
    wait_until(lambda: len(answers.found) == 3)
    answers.appender.close()
    assert len(answers.found) == 3


def test_a_fatal_error_replaces_the_producer(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch)
    FakeProducer.made[0].is_fatal = True
    with pytest.raises(Unavailable) as fenced:
        answers.append()
    assert fenced.value.reason == "producer_fenced"
    answers.append()
    wait_until(lambda: len(answers.found) == 1)
    assert answers.found == [Appended(3, 0, 1_000)]
    answers.appender.close()


def test_an_error_that_ends_a_producer_ends_no_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As CLUSTER_AUTHORIZATION_FAILED, which the library reports by a poll."""
    answers = Answers(monkeypatch)
    (producer,) = FakeProducer.made
    producer.reports_fatal = True
    wait_until(lambda: not producer.reports_fatal)
    answers.append()
    wait_until(lambda: len(answers.found) == 1)
    assert answers.found == [Appended(3, 0, 1_000)]
    producer.reports_fatal = True
    answers.appender.close()


def test_close_answers_what_a_producer_left_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProducer, "is_deaf", True)
    answers = Answers(monkeypatch)
    answers.append()
    answers.appender.close()
    (lost,) = answers.found
    assert isinstance(lost, Unavailable)
    assert lost.reason == "log_closed"
    with pytest.raises(Unavailable):
        answers.append()
    answers.appender.close()
    assert len(answers.found) == 1


def test_a_look_while_the_log_closes_takes_no_answer_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProducer, "is_deaf", True)
    answers = Answers(monkeypatch)
    (deaf,) = FakeProducer.made
    answers.append()
    answers.clock.sleep(DELIVERY_S + GRACE_S + 0.5)
    # The watch looks while the producer ends, which takes seconds.
    monkeypatch.setattr(deaf, "purge", answers.appender.look)
    answers.appender.close()
    (lost,) = answers.found
    assert isinstance(lost, Unavailable)
    assert lost.reason == "log_closed"


@pytest.mark.parametrize("is_lost", [False, True])
def test_flush_waits_for_callbacks_that_run(monkeypatch: pytest.MonkeyPatch, is_lost: bool) -> None:
    monkeypatch.setattr(FakeProducer, "is_deaf", is_lost)
    answers, began, goes_on = Answers(monkeypatch), threading.Event(), threading.Event()

    def slow(answer: Appended | TsdbError) -> None:
        began.set()
        assert goes_on.wait(60.0)
        answers.found.append(answer)

    answers.appender.append(METRICS, 3, b"v", key=None, headers=(), timestamp_ms=None, on_done=slow)
    answers.clock.sleep(DELIVERY_S + GRACE_S + 0.5)
    monkeypatch.setattr(FakeProducer, "is_deaf", False)
    looking = threading.Thread(target=answers.appender.look)
    if is_lost:
        looking.start()
    assert began.wait(60.0)
    with pytest.raises(Unavailable):
        answers.appender.flush(0.05)
    goes_on.set()
    answers.appender.flush(60.0)
    assert len(answers.found) == 1
    answers.appender.close()
    if is_lost:
        looking.join()


def test_flush_waits_for_the_answers_of_a_replaced_producer_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeProducer, "is_deaf", True)
    answers = Answers(monkeypatch)
    (deaf,) = FakeProducer.made
    answers.append()
    deaf.is_fatal = True
    monkeypatch.setattr(FakeProducer, "is_deaf", False)
    with pytest.raises(Unavailable):
        answers.append()
    with pytest.raises(Unavailable) as left:
        answers.appender.flush(0.05)
    assert "1 records" in left.value.message
    deaf.is_deaf = False
    deaf.poll(0.0)
    answers.appender.flush(10.0)
    answers.appender.close()


def test_records_appended_while_the_producer_is_replaced_are_all_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = Answers(monkeypatch)

    def append() -> None:
        for _ in range(20):
            answers.append()

    threads = [threading.Thread(target=append) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        with answers.appender._changed:
            answers.appender._renew_locked("a test")
    for thread in threads:
        thread.join(60.0)
    answers.appender.flush(10.0)
    assert len(answers.found) == 80
    answers.appender.close()
