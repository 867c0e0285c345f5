"""Kafka: what an error of the client library means for a consumer: one of ours, or one that passes by itself."""

from __future__ import annotations

from confluent_kafka import KafkaError

from tsdb.parallel_consumer.errors import CommitFailed, ConsumerError, Fenced

_STALE = frozenset(
    {
        KafkaError.ILLEGAL_GENERATION,
        KafkaError.UNKNOWN_MEMBER_ID,
        KafkaError._ASSIGNMENT_LOST,
        KafkaError._MAX_POLL_EXCEEDED,
        KafkaError._STATE,
    }
)
# Of the whole member: the library says it once, and then gives no records and no other error.
_ENDED = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID})
_OFFSET_LOST = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._LOG_TRUNCATION})
TOPIC_GONE = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.UNKNOWN_TOPIC_ID,
        KafkaError._UNKNOWN_PARTITION,
    }
)
_DENIED = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.GROUP_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    }
)


def is_lost_offset(error: KafkaError) -> bool:
    """Whether the log does not hold what was to be read."""
    return error.code() in _OFFSET_LOST


def ends_the_member(error: KafkaError) -> bool:
    """Whether the library itself goes no further."""
    return error.code() in _ENDED


def ends_the_consumer(error: KafkaError) -> bool:
    """Whether it does not pass by itself."""
    return error.fatal() or error.code() in _OFFSET_LOST | TOPIC_GONE | _DENIED


def member_ended(error: KafkaError, group: object, instance: object) -> ConsumerError:
    """Of one that ends the member: Fenced when another has its group.instance.id, else kafka."""
    text = f"group {group}: {error.str()} ({error.name()})"
    # Most often it comes as a fatal one whose text has the text of what it was.
    if KafkaError(KafkaError.FENCED_INSTANCE_ID).str() in error.str():
        return Fenced(f"{text}: another member has group.instance.id {instance} now")
    return ConsumerError(text, reason="kafka")


def is_stale(error: KafkaError) -> bool:
    """Whether the group goes on without this member."""
    return error.code() in _STALE


def commit_failed(error: KafkaError) -> CommitFailed:
    """Of a commit: stale_member when no later one can do better."""
    reason = "stale_member" if is_stale(error) else "unavailable"
    return CommitFailed(f"commit: {error.str()} ({error.name()})", reason=reason)


def to_error(error: KafkaError, where: str) -> ConsumerError:
    """Of all else: lost_offsets, topic_gone, denied, kafka."""
    code = error.code()
    reason = "lost_offsets" if code in _OFFSET_LOST else "topic_gone" if code in TOPIC_GONE else "denied"
    reason = reason if code in _OFFSET_LOST | TOPIC_GONE | _DENIED else "kafka"
    return ConsumerError(f"{where}: {error.str()} ({error.name()})", reason=reason)
