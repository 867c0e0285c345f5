"""Errors: one class per thing a caller can do next.

Each carries a `reason` (a short code from a bounded set, also the label of the counter that counts it), the human
text, and `metadata` for machines. gRPC statuses are made of them in `tsdb.ops.grpc_errors` and nowhere else.
"""

from __future__ import annotations


class TsdbError(Exception):
    """Base of all errors of ours. `reason` is a bounded snake_case code."""

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
    """No valid bearer token or client certificate. gRPC UNAUTHENTICATED."""

    default_reason = "unauthenticated"


class _Retryable(TsdbError):
    def __init__(
        self, message: str, *, reason: str | None = None, retry_after_s: float | None = None, **metadata: object
    ) -> None:
        super().__init__(message, reason=reason, **metadata)
        self.retry_after_s = retry_after_s


class Unavailable(_Retryable):
    """Ours or a dependency's: retry later. gRPC UNAVAILABLE, with a hint."""

    default_reason = "unavailable"


class Overloaded(_Retryable):
    """Over a limit of load or size: retry slower or ask for less. gRPC RESOURCE_EXHAUSTED."""

    default_reason = "overloaded"


class OutOfCoverage(TsdbError):
    """Before what is held: ask elsewhere. gRPC OUT_OF_RANGE, with what is held."""

    default_reason = "out_of_coverage"


class CorruptData(TsdbError):
    """Bytes that break their format. gRPC DATA_LOSS."""

    default_reason = "corrupt_data"


class HoleInRange(TsdbError):
    """A named loss touches what was asked. gRPC DATA_LOSS."""

    default_reason = "hole"


class UnknownVersion(TsdbError):
    """A record or setting written by a newer version: stop, never guess. gRPC FAILED_PRECONDITION."""

    default_reason = "unknown_version"


class ConfigMismatch(TsdbError):
    """Settings that all must share differ; the start is refused. gRPC FAILED_PRECONDITION."""

    default_reason = "config_mismatch"


class LostOffsets(TsdbError):
    """The log no longer holds what is to be read next: an error and a fresh start, never a skip."""

    default_reason = "lost_offsets"
