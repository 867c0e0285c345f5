"""Every error of the client library becomes one of ours."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tsdb.log.append_answers import REASONS
from tsdb.log.kafka.errors import to_error, translate_kafka_errors
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unavailable, WrongTopic

CODES = sorted(
    code for name in dir(KafkaError) if name.isupper() and isinstance(code := getattr(KafkaError, name), int) and code
)


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_mapped_to_an_error_of_ours(code: int) -> None:
    error = to_error(KafkaError(code), "topic metrics, partition 3")
    assert isinstance(error, TsdbError)
    assert "topic metrics, partition 3" in error.message
    if isinstance(error, Unavailable | Overloaded):
        assert error.retry_after_s is not None


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (KafkaError._MSG_TIMED_OUT, Unavailable, "log_unavailable"),
        (KafkaError.NOT_ENOUGH_REPLICAS, Unavailable, "not_enough_replicas"),
        (KafkaError.MSG_SIZE_TOO_LARGE, InvalidRequest, "record_too_large"),
        (KafkaError.UNKNOWN_TOPIC_OR_PART, WrongTopic, "unknown_topic"),
        (KafkaError.ILLEGAL_GENERATION, Unavailable, "stale_member"),
        (KafkaError.SASL_AUTHENTICATION_FAILED, Unavailable, "log_unauthorized"),
        (KafkaError.POLICY_VIOLATION, Unavailable, "log_error"),
    ],
)
def test_the_class_of_an_error_is_the_next_action(code: int, kind: type[TsdbError], reason: str) -> None:
    error = to_error(KafkaError(code), "here")
    assert type(error) is kind
    assert error.reason == reason


def test_every_reason_of_a_failed_append_has_a_counter_from_the_start() -> None:
    reasons = {to_error(KafkaError(code), "").reason for code in CODES}
    assert reasons - {"stale_member", "metadata_too_large"} <= set(REASONS)


def test_exceptions_are_raised_as_ours() -> None:
    with pytest.raises(Unavailable), translate_kafka_errors("here"):
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))
    with pytest.raises(Overloaded) as full, translate_kafka_errors("here"):
        raise BufferError("Local: Queue full")
    assert full.value.reason == "queue_full"
