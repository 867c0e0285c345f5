"""Answers of a producer, with a fake producer whose answers the test sets."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import OFFSET_INVALID, TIMESTAMP_LOG_APPEND_TIME, KafkaError, Message

from support.servers.logs import wait_until
from tsdb.log.interface import METRICS, Appended
from tsdb.log.kafka import appender
from tsdb.log.kafka.appender import KafkaAppender
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.threads import watched_threads

OnDelivery = Callable[[KafkaError | None, Message], None]


class FakeProducer:
    """Answers records in order: each with its offset, of those given."""

    offsets: tuple[int, ...] = ()

    def __init__(self, config: object) -> None:
        self._waiting: list[OnDelivery] = []
        self._answered = 0

    def produce(self, *arguments: Any, on_delivery: OnDelivery, **options: Any) -> None:
        self._waiting.append(on_delivery)

    def poll(self, timeout: float) -> None:
        time.sleep(0.001)  # As a producer that waits for answers.
        while self._waiting:
            offset = self.offsets[self._answered]
            self._answered += 1
            at = (TIMESTAMP_LOG_APPEND_TIME, 1_000)
            self._waiting.pop(0)(None, Message(topic=METRICS, partition=3, offset=offset, timestamp=at))

    def flush(self, timeout: float) -> int:
        self.poll(timeout)
        return 0


def test_a_stored_record_without_an_offset_is_retryable_and_the_next_is_appended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A broker answers so for a batch that it stored at an earlier attempt and whose offset it no longer knows."""
    monkeypatch.setattr(FakeProducer, "offsets", (7, OFFSET_INVALID, 9))
    monkeypatch.setattr(appender, "Producer", FakeProducer)
    answers: list[Appended | TsdbError] = []
    made = KafkaAppender({})
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
    monkeypatch.setattr(appender, "Producer", FakeProducer)
    answers: list[Appended | TsdbError] = []
    broken = RuntimeError("broken")

    def fail(_answer: Appended | TsdbError) -> None:
        raise broken

    with watched_threads() as failures:
        made = KafkaAppender({})
        for on_done in (fail, answers.append):
            made.append(METRICS, 3, b"v", key=None, headers=(), timestamp_ms=None, on_done=on_done)
        wait_until(lambda: len(answers) == 1)
        made.close()
    assert failures.failure() is broken
