"""Errors of the parallel consumer: each says what to do next, with a `reason` from a bounded set."""

from __future__ import annotations


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
    """A commit was not acknowledged: it is tried again. Reasons: unavailable, stale_member."""

    default_reason = "unavailable"


class SendFailed(ConsumerError):
    """A dead letter or requeued record was not acknowledged. Reasons: unavailable, record_too_large."""

    default_reason = "unavailable"


class HandlerStopped(ConsumerError):
    """An exception of the class `fatal` ended the consumer; the exception is the cause."""

    default_reason = "fatal"


class Misused(ConsumerError):
    """Options that do not fit together."""

    default_reason = "misused"
