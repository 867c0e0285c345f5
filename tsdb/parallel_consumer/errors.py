"""Errors of the parallel consumer. Each has a `reason` from a bounded set."""

from __future__ import annotations

from collections.abc import Mapping


class ConsumerError(Exception):
    """Base of all errors of this library. `reason` is a bounded snake_case code."""

    default_reason = "internal"

    def __init__(self, message: str, *, reason: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason


class MetadataRefused(ConsumerError):
    """Commit metadata that cannot be trusted: reading on could skip or repeat records without notice.

    Reasons: unknown_version, bad_checksum, malformed, wrong_topic. With `accept_replay` the metadata is ignored and all
    records from the committed offset on are handled again, except for wrong_topic: the first records of another topic
    lie below that offset.
    """

    default_reason = "malformed"


class TopicRecreated(ConsumerError):
    """A topic was deleted and made again while it was read: offsets of the old one mean nothing in the new one."""

    default_reason = "topic_recreated"


class CommitFailed(ConsumerError):
    """A commit was not acknowledged; the consumer tries again. Reasons: unavailable, stale_member, undecided
    (transactions: the next attempt shows whether it is durable).
    """

    default_reason = "unavailable"


class Fenced(ConsumerError):
    """Another process has taken over this member's id. This member can commit nothing more, and ends."""

    default_reason = "fenced"


class SendFailed(ConsumerError):
    """A dead letter or requeued record was not acknowledged. Reasons: unavailable, no_topic (topic or partition
    missing), record_too_large.
    """

    default_reason = "unavailable"


class HandlerStopped(ConsumerError):
    """An exception of the class `fatal` ended the consumer; the exception is the cause."""

    default_reason = "fatal"


class InvalidConfig(ConsumerError):
    """Options or settings that are invalid or contradict each other."""

    default_reason = "misused"


class Nack(ConsumerError):
    """Raised by a handler: try the record again after delay_s without counting an attempt. Its lane waits."""

    default_reason = "nack"

    def __init__(self, delay_s: float) -> None:
        super().__init__(f"try again after {delay_s} s")
        self.delay_s = delay_s


class Requeue(ConsumerError):
    """Raised by a handler: send the record to the end of its topic, a bounded number of times. Its lane goes on."""

    default_reason = "requeue"


class DeadLettered(ConsumerError):
    """Raised by a handler: send the record to the dead letters at once with this reason. Its lane goes on."""

    default_reason = "given_up"


class DeferralLost(ConsumerError):
    """A Deferral was dropped before it was completed or failed: a bug of the handler. The error policy decides."""

    default_reason = "deferral_lost"


class WorkerDied(ConsumerError):
    """The process that handled the record ended. The error policy decides."""

    default_reason = "worker_died"


class SomeFailed(ConsumerError):
    """Some records of a block or batch failed. errors: errors by row."""

    default_reason = "some_failed"

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(f"{len(errors)} records failed")
        self.errors = errors


class InvalidResult(ConsumerError):
    """A batch or column handler returned something other than None or one result per record. A bug of the handler."""

    default_reason = "misanswered"
