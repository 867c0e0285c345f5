"""Errors: each class stands for one next step of the caller.

Each has a `reason` (a short code from a bounded set, also the label of the error's counter), a text for humans, and
`metadata` for machines. Only `tsdb.ops.grpc.errors` makes gRPC statuses from them.
"""

from __future__ import annotations


class TsdbError(Exception):
    """Base of all errors of this project. reason: a snake_case code from a bounded set."""

    default_reason = "internal"

    def __init__(self, message: str, *, reason: str | None = None, **metadata: object) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason or self.default_reason
        self.metadata: dict[str, str] = {key: str(value) for key, value in metadata.items()}


class InvalidRequest(TsdbError):
    """The caller's fault: do not retry. gRPC INVALID_ARGUMENT."""

    default_reason = "invalid_request"


class WrongTopic(InvalidRequest):
    """A token, commit or reader that belongs to another incarnation of the topic."""

    default_reason = "wrong_topic"


class Unauthenticated(TsdbError):
    """The request has no valid bearer token or client certificate. gRPC UNAUTHENTICATED."""

    default_reason = "unauthenticated"


class _Retryable(TsdbError):
    def __init__(
        self, message: str, *, reason: str | None = None, retry_after_s: float | None = None, **metadata: object
    ) -> None:
        super().__init__(message, reason=reason, **metadata)
        self.retry_after_s = retry_after_s


class Unavailable(_Retryable):
    """This process or a dependency cannot serve now: retry later. gRPC UNAVAILABLE, with a hint."""

    default_reason = "unavailable"


class Overloaded(_Retryable):
    """Over a limit of load or size: retry slower or ask for less. gRPC RESOURCE_EXHAUSTED."""

    default_reason = "overloaded"


class OutOfCoverage(TsdbError):
    """The range starts before the samples in memory: ask elsewhere. gRPC OUT_OF_RANGE, with the range in memory."""

    default_reason = "out_of_coverage"


class CorruptData(TsdbError):
    """Bytes that break their format. gRPC DATA_LOSS."""

    default_reason = "corrupt_data"


class HoleInRange(TsdbError):
    """A named loss touches the requested range. gRPC DATA_LOSS."""

    default_reason = "hole"


class UnknownVersion(TsdbError):
    """A newer version wrote a record or setting. Stop, and do not guess. gRPC FAILED_PRECONDITION."""

    default_reason = "unknown_version"


class ConfigMismatch(TsdbError):
    """Settings that all processes must share differ; the start is refused. gRPC FAILED_PRECONDITION."""

    default_reason = "config_mismatch"


class LostOffsets(TsdbError):
    """The log no longer holds the next offset to read: an error and a fresh start, never a skip."""

    default_reason = "lost_offsets"


# Final reasons of Unavailable: the call's time is over, the call was cancelled, or the two sides do not agree on TLS or
# HTTP/2. A server with a shorter bound uses the same reason with a hint; that error is retryable.
_FINAL_REASONS = frozenset({"deadline", "cancelled", "client_closed", "tls", "wrong_port"})
# Retryable overload without a hint: gRPC refused the call before our code ran.
_PASSING_REASONS = frozenset({"server_overloaded", "concurrent_requests"})


def worth_retrying(error: TsdbError) -> bool:
    """Whether the same call may succeed later. Overload by the size of the request has no hint and is final."""
    if isinstance(error, Unavailable):
        return error.reason not in _FINAL_REASONS or error.retry_after_s is not None
    if isinstance(error, Overloaded):
        return error.retry_after_s is not None or error.reason in _PASSING_REASONS
    return isinstance(error, LostOffsets)
