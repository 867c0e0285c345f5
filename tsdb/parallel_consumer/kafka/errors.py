"""Kafka errors: translates errors of the client library into this library's errors, or marks them as temporary."""

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
# With group.protocol=classic the older member ends (FENCED_INSTANCE_ID), with consumer the newer one
# (UNRELEASED_INSTANCE_ID).
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
# These end the member: the library reports them once, then returns no records and no other error.
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
    "lost_offsets": ": the log no longer holds the next offset to read; set the group's offset to continue"
    " (kafka-consumer-groups --reset-offsets)",
    "topic_gone": ": create the topic, or correct the name",
    "denied": ": correct the credentials, or grant the right",
}


def is_lost_offset(error: KafkaError) -> bool:
    """Whether the log no longer holds the offset to be read."""
    return error.code() in _OFFSET_LOST


def is_topic_gone(error: KafkaError) -> bool:
    """Whether the topic, or the partition of it, does not exist."""
    return error.code() in TOPIC_GONE


def is_denied(error: KafkaError) -> bool:
    """Whether the brokers refuse the credentials, or grant no right."""
    return error.code() in _DENIED


def ends_the_member(error: KafkaError) -> bool:
    """Whether the library itself cannot go on."""
    return error.code() in _ENDED


def ends_the_consumer(error: KafkaError) -> bool:
    """Whether the error is permanent."""
    return error.fatal() or error.code() in _OFFSET_LOST | TOPIC_GONE | _DENIED


def passes(error: KafkaError) -> bool:
    """Whether a retry may be answered: no broker answered, or none that knows the answer."""
    return not error.fatal() and (error.retriable() or error.code() in _PASSES)


def member_ended(error: KafkaError, group: object, instance: object) -> ConsumerError:
    """Error for a member that ended: Fenced when another member has its group.instance.id, else reason kafka."""
    text = f"group {group}: {error.str()} ({error.name()})"
    # The error mostly arrives as a fatal error whose text contains the text of the original one.
    if any(KafkaError(code).str() in error.str() for code in _OF_ANOTHER_INSTANCE):
        return Fenced(f"{text}: another member has group.instance.id {instance} now")
    return ConsumerError(text, reason="kafka")


def is_stale(error: KafkaError) -> bool:
    """Whether the group goes on without this member."""
    return error.code() in _STALE


def commit_failed(error: KafkaError) -> CommitFailed:
    """Error of a commit: stale_member when no later commit can succeed.

    STALE_MEMBER_EPOCH does not make a member stale: a member of group.protocol=consumer is one epoch behind until its
    next heartbeat.
    """
    reason = "stale_member" if is_stale(error) else "unavailable"
    return CommitFailed(f"commit: {error.str()} ({error.name()})", reason=reason)


def to_error(error: KafkaError, where: str) -> ConsumerError:
    """Any other error: reason lost_offsets, topic_gone, denied or kafka."""
    code = error.code()
    reason = "lost_offsets" if code in _OFFSET_LOST else "topic_gone" if code in TOPIC_GONE else "denied"
    reason = reason if code in _OFFSET_LOST | TOPIC_GONE | _DENIED else "kafka"
    next_step = _NEXT_STEPS.get(reason, "")
    return ConsumerError(f"{where}: {error.str()} ({error.name()}){next_step}", reason=reason)
