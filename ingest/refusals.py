"""Refusals: collects the refused rows of a request with their reasons, and reports them to the sender.

Reasons are a bounded set: they label the counter, the offenders of a partial answer and the details of an error.

Errors of the log, translated for the sender of a request. The sender's next step is always to send again later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from tsdb.log.interface import Appended
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unavailable
from tsdb.model.histograms import PROBLEMS, SHAPE_REASONS
from tsdb.model.labels import format_series
from tsdb.ops.metrics import counter

OFFENDERS_MAX = 16
MESSAGE_BYTES_MAX = 224
# An error is sent in HTTP/2 headers. tsdb.ops.grpc.errors allows 12 values there; three of them are counts.
LISTED_IN_ERROR_MAX = 9
SERIES_CHARS_MAX = 100
ROW_REASONS = (
    "labels_empty", "labels_malformed", "labels_reserved", "labels_duplicate", "labels_too_many", "labels_too_long",
    "id_conflict", "too_old", "too_far_ahead", "source_series_limit", "gateway_series_limit",
    "delta_temporality", "unspecified_temporality", "histogram_scale", "native_histogram",
    "source_requests_limit", "source_samples_limit", *SHAPE_REASONS, *filter(None, PROBLEMS),
)  # fmt: skip
REQUEST_REASONS = (
    "token_requests_limit", "token_samples_limit",
    "empty_request", "malformed_request", "request_too_large", "too_many_series", "too_many_samples",
    "record_too_large", "inflight_bytes", "draining", "deadline", "clock", "boundaries", "queue_full", "disk_full",
    "unavailable", "timeout", "topic_recreated", "unknown_topic", "message_too_large", "request_bytes",
    "unsupported_media_type", "unsupported_encoding", "unsupported_version", "corrupt_encoding",
    "method_not_allowed", "native_histogram",
    "token_missing", "token_malformed", "token_wrong", "body_timeout",
    "malformed", "cut", "header_too_large", "length_required", "other_origin", "other_host",
)  # fmt: skip
# IN_REFUSED_REQUEST: good samples of a request refused because of other rows. OTHER: any further error of the log.
IN_REFUSED_REQUEST = "in_refused_request"
OTHER = "other"
_REASONS = (*ROW_REASONS, *REQUEST_REASONS, IN_REFUSED_REQUEST, OTHER)
_refused_samples = counter("tsdb_ingest_refused_samples_total", "Samples that were not accepted.", "reason", _REASONS)
_refused_requests = counter(
    "tsdb_ingest_refused_requests_total", "Requests answered with an error.", "reason", _REASONS
)

RETRY_AFTER_S = 1.0  # A broker fail-over takes seconds, and senders buffer for longer than that.


@dataclass(frozen=True, slots=True)
class Offender:
    """A refused row. The message names series, actual value and limit, in at most MESSAGE_BYTES_MAX bytes."""

    series_index: int
    reason: str
    message: str


@dataclass(slots=True)
class Refusals:
    """The refused rows of one request; OFFENDERS_MAX are kept with their text.

    retry_after_s: rows are refused for the rate of their source, and are accepted after this time. It is the one
    refusal of a row that waiting mends: without it, the same request would be refused for ever.
    """

    offenders: list[Offender] = field(default_factory=list)
    rows: set[int] = field(default_factory=set)
    samples: Counter[str] = field(default_factory=Counter)
    retry_after_s: float | None = None

    def wants_text(self) -> bool:
        """Whether `add` keeps the next message. A message for each of many rows would cost more than the write."""
        return len(self.offenders) < OFFENDERS_MAX

    def add(self, row: int, samples: int, reason: str, message: str) -> None:
        """Refuse one row with its samples. `message` may be empty when `wants_text` is False."""
        if self.wants_text():
            self.offenders.append(Offender(row, reason, cut(message)))
        self.rows.add(row)
        self.samples[reason] += samples

    def add_rate(
        self, rows: NDArray[np.int64], samples: int, reason: str, message: str, retry_after_s: float | None
    ) -> None:
        """Refuse the rows of a source for its rate. The first of them is listed, before rows with another problem.

        retry_after_s: None for a source that may bring nothing.
        """
        self.offenders = [Offender(int(rows[0]), reason, cut(message)), *self.offenders][:OFFENDERS_MAX]
        self.rows.update(rows.tolist())
        self.samples[reason] += samples
        if retry_after_s is not None:
            self.retry_after_s = max(retry_after_s, self.retry_after_s or 0)

    def error(self, samples: int) -> RefusedRows:
        """The error for a whole request of `samples` samples. Its text has the first offender, its metadata the next
        ones."""
        first = self.offenders[0]
        more = f" (and {len(self.rows) - 1} more series)" if len(self.rows) > 1 else ""
        listed = self.offenders[1 : 1 + LISTED_IN_ERROR_MAX]
        return refused_rows(
            self.retry_after_s,
            f"series_index {first.series_index}: {first.message}{more}; nothing was written",
            {**self.samples, IN_REFUSED_REQUEST: samples - self.samples.total()},
            self.offenders,
            reason=first.reason,
            refused_series=len(self.rows),
            refused_samples=self.samples.total(),
            series_index=first.series_index,
            **{f"offender_{offender.series_index}": f"{offender.reason}: {offender.message}" for offender in listed},
        )


class RefusedRows(TsdbError):
    """samples: number of the request's samples by the reason for the counter. offenders: the first refused rows, at
    least one."""

    def __init__(
        self,
        message: str,
        samples: Mapping[str, int],
        offenders: Sequence[Offender],
        *,
        reason: str,
        **metadata: object,
    ) -> None:
        super().__init__(message, reason=reason, **metadata)
        self.samples = samples
        self.offenders = offenders


class RefusedSeries(RefusedRows, InvalidRequest):
    """A request refused because of some rows. Sending it again cannot help, also where new series are over a limit."""


class SourceOverRate(RefusedRows, Overloaded):
    """A request with a source over a rate. It may be sent again after retry_after_s."""


def refused_rows(
    retry_after_s: float | None,
    message: str,
    samples: Mapping[str, int],
    offenders: Sequence[Offender],
    *,
    reason: str,
    **metadata: object,
) -> RefusedRows:
    """The error for refused rows: SourceOverRate where waiting helps, else RefusedSeries."""
    if retry_after_s is None:
        return RefusedSeries(message, samples, offenders, reason=reason, **metadata)
    return SourceOverRate(message, samples, offenders, reason=reason, retry_after_s=retry_after_s, **metadata)


def count_refused_samples(samples: Mapping[str, int]) -> None:
    """Increment tsdb_ingest_refused_samples_total; unknown reasons count as `other`."""
    for reason, count in samples.items():
        _refused_samples.labels(bounded_reason(reason)).inc(count)


def count_refused_request(error: TsdbError, samples: int) -> None:
    """Count a request with `samples` samples that is answered with `error`."""
    _refused_requests.labels(bounded_reason(error.reason)).inc()
    count_refused_samples(error.samples if isinstance(error, RefusedRows) else {error.reason: samples})


def cut(message: str) -> str:
    """The message, cut to at most MESSAGE_BYTES_MAX bytes of UTF-8."""
    encoded = message.encode(errors="replace")
    if len(encoded) <= MESSAGE_BYTES_MAX:
        return encoded.decode()
    return encoded[: MESSAGE_BYTES_MAX - 3].decode(errors="ignore") + "..."


def bounded_reason(reason: str) -> str:
    """The reason for a counter's label: `other` for one outside the bounded set."""
    return reason if reason in _REASONS else OTHER


def shown_series(canonical: bytes) -> str:
    """Labels for a message, short enough that the rest of the message survives `cut`."""
    text = format_series(canonical)
    return text if len(text) <= SERIES_CHARS_MAX else text[: SERIES_CHARS_MAX - 3] + "..."


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
