"""Translates Kafka errors to TsdbError: one table, one function, one context manager.

A code that is not in the table is Unavailable (log_error): an unknown answer of a broker deserves a retry and an alarm.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from confluent_kafka import KafkaError, KafkaException

from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unavailable, WrongTopic

RETRY_AFTER_S = 1.0  # A leader's fail-over takes seconds.

_Kind = tuple[type[TsdbError], str]

_GONE: _Kind = (Unavailable, "log_unavailable")
_STALE: _Kind = (Unavailable, "stale_member")
_DENIED: _Kind = (Unavailable, "log_unauthorized")
_TOPIC: _Kind = (WrongTopic, "unknown_topic")
_LARGE: _Kind = (InvalidRequest, "record_too_large")
_BUG: _Kind = (TsdbError, "internal")

_TABLE: dict[int, _Kind] = {
    # No broker answers, or no broker that may answer. The state passes.
    KafkaError._TRANSPORT: _GONE,
    KafkaError._ALL_BROKERS_DOWN: _GONE,
    KafkaError._RESOLVE: _GONE,
    KafkaError._MSG_TIMED_OUT: _GONE,
    KafkaError._TIMED_OUT: _GONE,
    KafkaError._TIMED_OUT_QUEUE: _GONE,
    KafkaError._WAIT_COORD: _GONE,
    KafkaError._WAIT_CACHE: _GONE,
    KafkaError._RETRY: _GONE,
    KafkaError._ISR_INSUFF: _GONE,
    KafkaError._PURGE_QUEUE: _GONE,
    KafkaError._PURGE_INFLIGHT: _GONE,
    KafkaError._DESTROY: _GONE,
    KafkaError._DESTROY_BROKER: _GONE,
    KafkaError._SSL: _GONE,
    KafkaError.BROKER_NOT_AVAILABLE: _GONE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS: _GONE,
    KafkaError.COORDINATOR_NOT_AVAILABLE: _GONE,
    KafkaError.FENCED_LEADER_EPOCH: _GONE,
    KafkaError.KAFKA_STORAGE_ERROR: _GONE,
    KafkaError.LEADER_NOT_AVAILABLE: _GONE,
    KafkaError.NETWORK_EXCEPTION: _GONE,
    KafkaError.NOT_CONTROLLER: _GONE,
    KafkaError.NOT_COORDINATOR: _GONE,
    KafkaError.NOT_LEADER_FOR_PARTITION: _GONE,
    KafkaError.OFFSET_NOT_AVAILABLE: _GONE,
    KafkaError.REPLICA_NOT_AVAILABLE: _GONE,
    KafkaError.REQUEST_TIMED_OUT: _GONE,
    KafkaError.THROTTLING_QUOTA_EXCEEDED: _GONE,
    KafkaError.UNKNOWN_LEADER_EPOCH: _GONE,
    KafkaError.UNSTABLE_OFFSET_COMMIT: _GONE,
    # Too few replicas for a durable write, so the write is refused.
    KafkaError.NOT_ENOUGH_REPLICAS: (Unavailable, "not_enough_replicas"),
    KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND: (Unavailable, "not_enough_replicas"),
    # The producer lost its position and is replaced. The record may or may not be in the log.
    KafkaError._FATAL: (Unavailable, "producer_fenced"),
    KafkaError._FENCED: (Unavailable, "producer_fenced"),
    KafkaError._GAPLESS_GUARANTEE: (Unavailable, "producer_fenced"),
    KafkaError.DUPLICATE_SEQUENCE_NUMBER: (Unavailable, "producer_fenced"),
    KafkaError.INVALID_PRODUCER_EPOCH: (Unavailable, "producer_fenced"),
    KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER: (Unavailable, "producer_fenced"),
    KafkaError.PRODUCER_FENCED: (Unavailable, "producer_fenced"),
    KafkaError.UNKNOWN_PRODUCER_ID: (Unavailable, "producer_fenced"),
    KafkaError._QUEUE_FULL: (Overloaded, "queue_full"),
    # Errors of the record itself.
    KafkaError.MSG_SIZE_TOO_LARGE: _LARGE,
    KafkaError.RECORD_LIST_TOO_LARGE: _LARGE,
    KafkaError.INVALID_MSG_SIZE: _LARGE,
    KafkaError.INVALID_TIMESTAMP: (InvalidRequest, "invalid_timestamp"),
    KafkaError.INVALID_RECORD: (InvalidRequest, "invalid_record"),
    KafkaError.OFFSET_METADATA_TOO_LARGE: (InvalidRequest, "metadata_too_large"),
    # Errors of the topic.
    KafkaError.UNKNOWN_TOPIC_OR_PART: _TOPIC,
    KafkaError._UNKNOWN_TOPIC: _TOPIC,
    KafkaError.TOPIC_EXCEPTION: _TOPIC,
    KafkaError.UNKNOWN_TOPIC_ID: (WrongTopic, "topic_recreated"),
    KafkaError.INCONSISTENT_TOPIC_ID: (WrongTopic, "topic_recreated"),
    KafkaError._UNKNOWN_PARTITION: (InvalidRequest, "unknown_partition"),
    # Errors of the group.
    KafkaError.ILLEGAL_GENERATION: _STALE,
    KafkaError.UNKNOWN_MEMBER_ID: _STALE,
    KafkaError.FENCED_MEMBER_EPOCH: _STALE,
    KafkaError.STALE_MEMBER_EPOCH: _STALE,
    KafkaError.FENCED_INSTANCE_ID: _STALE,
    KafkaError.REBALANCE_IN_PROGRESS: _STALE,
    KafkaError._ASSIGNMENT_LOST: _STALE,
    KafkaError._MAX_POLL_EXCEEDED: _STALE,
    # Credentials.
    KafkaError._AUTHENTICATION: _DENIED,
    KafkaError.SASL_AUTHENTICATION_FAILED: _DENIED,
    KafkaError.TOPIC_AUTHORIZATION_FAILED: _DENIED,
    KafkaError.GROUP_AUTHORIZATION_FAILED: _DENIED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: _DENIED,
    KafkaError.UNSUPPORTED_SASL_MECHANISM: _DENIED,
    KafkaError.ILLEGAL_SASL_STATE: _DENIED,
    # Bugs of this code.
    KafkaError._INVALID_ARG: _BUG,
    KafkaError._STATE: _BUG,
    KafkaError._NOT_IMPLEMENTED: _BUG,
    KafkaError._CONFLICT: _BUG,
    KafkaError._UNSUPPORTED_FEATURE: _BUG,
}


def to_error(error: KafkaError, where: str) -> TsdbError:
    """The TsdbError for a Kafka error. where: names the topic and partition, or the request."""
    kind, reason = _TABLE.get(error.code(), (Unavailable, "log_error"))
    message = f"{where}: {error.str()} ({error.name()})"
    if issubclass(kind, Unavailable | Overloaded):
        return kind(message, reason=reason, retry_after_s=RETRY_AFTER_S)
    return kind(message, reason=reason)


@contextmanager
def translate_kafka_errors(where: str) -> Iterator[None]:
    """Raise Kafka's exceptions as TsdbError."""
    try:
        yield
    except KafkaException as error:
        raise to_error(error.args[0], where) from error
    except BufferError as error:
        raise Overloaded(f"{where}: {error}", reason="queue_full", retry_after_s=RETRY_AFTER_S) from error
