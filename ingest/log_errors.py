"""What the log says, as the sender of a request should hear it: what it can do next is to send again, later."""

from __future__ import annotations

from tsdb.log.interface import Appended
from tsdb.model.errors import Overloaded, TsdbError, Unavailable

RETRY_AFTER_S = 1.0  # A broker's fail-over takes seconds; senders buffer for longer.


def as_seen_by_sender(error: TsdbError) -> TsdbError:
    """Retryable errors as they are; any other is ours to mend, not the sender's, and becomes Unavailable."""
    if isinstance(error, Overloaded | Unavailable):
        return error
    return Unavailable(
        f"the log refused the write: {error.message}",
        reason=error.reason,
        retry_after_s=RETRY_AFTER_S,
        **error.metadata,
    )


def deadline_error(what: str) -> Unavailable:
    """The request's time is over. Some partitions may hold the samples."""
    return Unavailable(
        f"the log did not answer before the deadline: {what}; sending again is safe",
        reason="deadline",
        retry_after_s=RETRY_AFTER_S,
    )


def clock_error(record: Appended, newest_ms: int, ahead_ms: int) -> Unavailable:
    """The record is on the log, but readers will ignore a sample that far ahead of the broker's clock."""
    return Unavailable(
        f"the clocks of gateway and broker differ: a sample at {newest_ms} is {newest_ms - record.broker_ms} ms ahead "
        f"of the broker's time in partition {record.partition}, and readers ignore what is over {ahead_ms} ms ahead",
        reason="clock",
        retry_after_s=RETRY_AFTER_S,
        partition=record.partition,
        broker_ms=record.broker_ms,
        sample_ms=newest_ms,
    )
