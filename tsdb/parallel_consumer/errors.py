"""Errors of the parallel consumer: each says what to do next, with a `reason` from a bounded set."""

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
    """A commit whose metadata cannot be trusted: reading on would skip or repeat work without anybody knowing.

    Reasons: unknown_version, bad_checksum, malformed, wrong_topic. With `accept_replay` the metadata is passed over and
    everything from the committed offset on is done again.
    """

    default_reason = "malformed"


class CommitFailed(ConsumerError):
    """A commit was not acknowledged: it is tried again. Reasons: unavailable, stale_member, undecided (of transactions:
    whether it is durable, the next try tells).
    """

    default_reason = "unavailable"


class Fenced(ConsumerError):
    """Another process has taken the place of this one, under its name: this one can commit nothing, and ends."""

    default_reason = "fenced"


class SendFailed(ConsumerError):
    """A dead letter or requeued record was not acknowledged. Reasons: unavailable, no_topic (or no such partition),
    record_too_large.
    """

    default_reason = "unavailable"


class HandlerStopped(ConsumerError):
    """An exception of the class `fatal` ended the consumer; the exception is the cause."""

    default_reason = "fatal"


class Misused(ConsumerError):
    """Options that do not fit together."""

    default_reason = "misused"


class Nack(ConsumerError):
    """Raised by a handler: try the record again after delay_s, and count no attempt. Its lane waits."""

    default_reason = "nack"

    def __init__(self, delay_s: float) -> None:
        super().__init__(f"to be tried again after {delay_s} s")
        self.delay_s = delay_s


class Requeue(ConsumerError):
    """Raised by a handler: to the end of its topic with the record, a bounded number of times. Its lane goes on."""

    default_reason = "requeue"


class GivenUp(ConsumerError):
    """Raised by a handler: to the dead letters with the record, at once and with this reason. Its lane goes on."""

    default_reason = "given_up"


class DeferralLost(ConsumerError):
    """A deferred end was dropped without being told: a bug of the handler. The error policy decides."""

    default_reason = "deferral_lost"


class WorkerDied(ConsumerError):
    """A process that handled the record ended. The error policy decides."""

    default_reason = "worker_died"


class SomeFailed(ConsumerError):
    """Told of a block or batch of which only some records failed. errors: by row."""

    default_reason = "some_failed"

    def __init__(self, errors: Mapping[int, BaseException]) -> None:
        super().__init__(f"{len(errors)} records failed")
        self.errors = errors


class Misanswered(ConsumerError):
    """A batch or column handler returned something else than None or one result a record. A bug of the handler."""

    default_reason = "misanswered"
