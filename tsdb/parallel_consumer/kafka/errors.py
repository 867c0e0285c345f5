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
        KafkaError.FENCED_MEMBER_EPOCH,
    }
)
# The first: of group.protocol=classic the older member ends. The second: of consumer the newer one does.
_OF_ANOTHER_INSTANCE = (KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID)
_PASSES = frozenset(
    {
        KafkaError._ALL_BROKERS_DOWN,
        KafkaError._TIMED_OUT,
        KafkaError._TIMED_OUT_QUEUE,
        KafkaError._TRANSPORT,
        KafkaError._RESOLVE,
        KafkaError._WAIT_COORD,
        KafkaError._DESTROY,
    }
)
# Of the whole member: the library says it once, and then gives no records and no other error.
_ENDED = frozenset({KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID, KafkaError.UNRELEASED_INSTANCE_ID})
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
_NEXT_STEPS = {
    "lost_offsets": ": the log does not hold what was to be read next; set the group's offset where work should go on"
    " (kafka-consumer-groups --reset-offsets)",
    "topic_gone": ": create the topic, or correct the name",
    "denied": ": correct the credentials, or grant the right",
}


def is_lost_offset(error: KafkaError) -> bool:
    """Whether the log does not hold what was to be read."""
    return error.code() in _OFFSET_LOST


def is_topic_gone(error: KafkaError) -> bool:
    """Whether there is no topic, or no partition, of that name."""
    return error.code() in TOPIC_GONE


def is_denied(error: KafkaError) -> bool:
    """Whether the brokers refuse the credentials, or grant no right."""
    return error.code() in _DENIED


def ends_the_member(error: KafkaError) -> bool:
    """Whether the library itself goes no further."""
    return error.code() in _ENDED


def ends_the_consumer(error: KafkaError) -> bool:
    """Whether it does not pass by itself."""
    return error.fatal() or error.code() in _OFFSET_LOST | TOPIC_GONE | _DENIED


def passes(error: KafkaError) -> bool:
    """Whether asking again may be answered: no broker did, or none that knows."""
    return not error.fatal() and (error.retriable() or error.code() in _PASSES)


def member_ended(error: KafkaError, group: object, instance: object) -> ConsumerError:
    """Of one that ends the member: Fenced when another has its group.instance.id, else kafka."""
    text = f"group {group}: {error.str()} ({error.name()})"
    # Most often it comes as a fatal one whose text has the text of what it was.
    if any(KafkaError(code).str() in error.str() for code in _OF_ANOTHER_INSTANCE):
        return Fenced(f"{text}: another member has group.instance.id {instance} now")
    return ConsumerError(text, reason="kafka")


def is_stale(error: KafkaError) -> bool:
    """Whether the group goes on without this member."""
    return error.code() in _STALE


def commit_failed(error: KafkaError) -> CommitFailed:
    """Of a commit: stale_member when no later one can do better.

    STALE_MEMBER_EPOCH is none of those: a member of group.protocol=consumer is an epoch behind until it beats.
    """
    reason = "stale_member" if is_stale(error) else "unavailable"
    return CommitFailed(f"commit: {error.str()} ({error.name()})", reason=reason)


def to_error(error: KafkaError, where: str) -> ConsumerError:
    """Of all else: lost_offsets, topic_gone, denied, kafka."""
    code = error.code()
    reason = "lost_offsets" if code in _OFFSET_LOST else "topic_gone" if code in TOPIC_GONE else "denied"
    reason = reason if code in _OFFSET_LOST | TOPIC_GONE | _DENIED else "kafka"
    next_step = _NEXT_STEPS.get(reason, "")
    return ConsumerError(f"{where}: {error.str()} ({error.name()}){next_step}", reason=reason)
