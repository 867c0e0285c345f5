"""Offset lookups: the error of a broker that does not know its topics yet is retryable, and a client that has no answer
for long is replaced."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from tsdb.log.interface import Watermarks
from tsdb.log.kafka.clients import RENEW_AFTER_S
from tsdb.log.kafka.offsets import KafkaOffsets
from tsdb.model.clock import ManualClock
from tsdb.model.errors import Unavailable

HANG = object()  # A call that does not return.


class FakeConsumer:
    """Answers each request with the next of `answers`: an exception, or an offset or error for every partition."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.closed = threading.Event()

    def close(self) -> None:
        self.closed.set()

    def offsets_for_times(self, asked: list[TopicPartition], timeout: float) -> list[Any]:
        answer = self.answers.pop(0)
        if answer is HANG:
            threading.Event().wait()
        if isinstance(answer, Exception):
            raise answer
        return [FakeAnswer(at.partition, answer) for at in asked]


class FakeAnswer:
    """A TopicPartition as an answer."""

    def __init__(self, partition: int, answer: Any) -> None:
        self.partition = partition
        self.error = answer if isinstance(answer, KafkaError) else None
        self.offset = -1 if self.error else answer


def offsets(*answers: Any) -> KafkaOffsets:
    return KafkaOffsets(lambda: cast(Consumer, FakeConsumer(*answers)), str, ManualClock(), timeout_s=1.0)


UNKNOWN = pytest.mark.parametrize(
    "code", [KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART]
)


@UNKNOWN
def test_a_partition_known_to_exist_is_requested_again(code: int) -> None:
    error = KafkaError(code)
    assert offsets(KafkaException(error), error, 3, 9).watermarks("metrics", [0]) == {0: Watermarks(3, 9)}


@UNKNOWN
def test_a_partition_known_to_exist_is_never_reported_as_unknown(code: int) -> None:
    for answer in (KafkaException(KafkaError(code)), KafkaError(code)):
        with pytest.raises(Unavailable) as caught:
            offsets(*[answer] * 100).watermarks("metrics", [0])
        assert caught.value.reason == "log_unavailable"
        assert caught.value.retry_after_s is not None


def test_a_partition_without_a_leader_is_requested_again() -> None:
    waiting = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    assert offsets(waiting, 3, waiting, waiting, 9).watermarks("metrics", [0]) == {0: Watermarks(3, 9)}


def test_one_that_stays_without_a_leader_is_unavailable_in_time() -> None:
    waiting = KafkaError(KafkaError.LEADER_NOT_AVAILABLE)
    with pytest.raises(Unavailable):
        offsets(*[waiting] * 100).watermarks("metrics", [0])


def test_a_client_without_an_answer_for_long_is_replaced() -> None:
    timeout = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    deaf, second = FakeConsumer(*[timeout] * 1000), FakeConsumer(3, timeout, 9)
    consumers, clock = [second, deaf], ManualClock()
    lookups = KafkaOffsets(lambda: cast(Consumer, consumers.pop()), str, clock, timeout_s=1.0)
    with pytest.raises(Unavailable):
        lookups.watermarks("metrics", [0])
    clock.sleep(RENEW_AFTER_S - 5.0)
    with pytest.raises(Unavailable):
        lookups.watermarks("metrics", [0])
    assert not deaf.closed.is_set(), "an outage of seconds replaces nothing"
    clock.sleep(5.0)
    assert lookups.watermarks("metrics", [0]) == {0: Watermarks(3, 9)}
    assert deaf.closed.wait(60.0)
    assert not second.closed.is_set(), "an answer begins a new time"


def test_a_call_that_does_not_return_is_unavailable_and_the_next_has_another_client() -> None:
    consumers = [FakeConsumer(3, 9), FakeConsumer(HANG)]
    lookups = KafkaOffsets(lambda: cast(Consumer, consumers.pop()), str, ManualClock(), timeout_s=0.05, grace_s=0.0)
    with pytest.raises(Unavailable) as hung:
        lookups._ask("offsets", [], 0.05)
    assert hung.value.reason == "timeout"
    assert lookups.watermarks("metrics", [0]) == {0: Watermarks(3, 9)}


def test_requests_of_a_closed_log_are_refused() -> None:
    lookups = offsets(3, 9)
    lookups.close()
    with pytest.raises(Unavailable) as closed:
        lookups.watermarks("metrics", [0])
    assert closed.value.reason == "log_closed"
