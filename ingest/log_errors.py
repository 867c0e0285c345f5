"""Errors of the log, translated for the sender of a request. The sender's next step is always to send again later."""

from __future__ import annotations

from tsdb.log.interface import Appended
from tsdb.model.errors import Overloaded, TsdbError, Unavailable

RETRY_AFTER_S = 1.0  # A broker fail-over takes seconds, and senders buffer for longer than that.


def as_seen_by_sender(error: TsdbError) -> TsdbError:
    """Retryable errors, each with a time to wait. Any other error is not the sender's problem, and becomes Unavailable.

    A sender of OTLP drops a request after RESOURCE_EXHAUSTED without RetryInfo.
    """
    if isinstance(error, Overloaded | Unavailable):
        if error.retry_after_s is None:
            error.retry_after_s = RETRY_AFTER_S
        return error
    return Unavailable(
        f"the log refused the write: {error.message}",
        reason=error.reason,
        retry_after_s=RETRY_AFTER_S,
        **error.metadata,
    )


def deadline_error(what: str) -> Unavailable:
    """The error of a request past its deadline. Some partitions may already hold its samples."""
    return Unavailable(
        f"the log did not answer before the deadline: {what}; sending again is safe",
        reason="deadline",
        retry_after_s=RETRY_AFTER_S,
    )


def clock_error(record: Appended, newest_ms: int, ahead_ms: int) -> Unavailable:
    """The error of a record that is on the log with a sample too far ahead of the broker's clock: readers ignore it."""
    return Unavailable(
        f"the clocks of gateway and broker differ: a sample at {newest_ms} is {newest_ms - record.broker_ms} ms ahead "
        f"of the broker's time in partition {record.partition}; readers ignore samples over {ahead_ms} ms ahead",
        reason="clock",
        retry_after_s=RETRY_AFTER_S,
        partition=record.partition,
        broker_ms=record.broker_ms,
        sample_ms=newest_ms,
    )
