"""Answers over HTTP: the status of each of our errors, the hint to retry, and the text of refused series."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial as bound

from ingest.http.media import ENCODING, MEDIA_TYPE, VERSION
from ingest.pipeline import WriteResult
from ingest.refusals import SERIES_LIMIT_REASONS, RefusedRows, RefusedSeries, SeriesOverLimit, SourceOverRate
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unauthenticated, Unavailable
from tsdb.ops.http.bodies import HttpAnswer

RETRY_AFTER_S = 1
LIMIT_RETRY_AFTER_S = 30  # A limit of series is freed by windows, so a sender that tries each second only adds load.
TEXT_BYTES_MAX = 4096
TOO_LARGE = frozenset(
    {"message_too_large", "request_too_large", "too_many_series", "too_many_samples", "record_too_large"}
)
UNSUPPORTED = frozenset({MEDIA_TYPE, ENCODING, VERSION})
METHOD = "method_not_allowed"
CALLER_LIMITS = ("source_", "token_")  # Reasons of limits of one source or token begin with these.


def status_of(error: TsdbError) -> int:
    """The status code of an error. Senders repeat a request after 429, 503 and 500 only."""
    if isinstance(error, Unauthenticated):
        return 401
    if isinstance(error, InvalidRequest):
        return _invalid(error.reason)
    if isinstance(error, Overloaded):
        return 429 if of_source(error) else 503
    return 503 if isinstance(error, Unavailable) else 500


def of_source(error: Overloaded) -> bool:
    """Whether the error is a limit of the caller alone, not of the gateway's load."""
    return error.reason in SERIES_LIMIT_REASONS or error.reason.startswith(CALLER_LIMITS)


def _invalid(reason: str) -> int:
    if reason in UNSUPPORTED:
        return 415
    if reason in TOO_LARGE:
        return 413
    return 405 if reason == METHOD else 400


def error_headers(error: TsdbError) -> tuple[tuple[str, str], ...]:
    """retry-after for 429 and 503, in whole seconds; www-authenticate for 401."""
    status = status_of(error)
    if status == 401:
        return (("www-authenticate", "Bearer"),)
    if status not in (429, 503):
        return ()
    hint_s = getattr(error, "retry_after_s", None)
    default_s = LIMIT_RETRY_AFTER_S if status == 429 else RETRY_AFTER_S
    return (("retry-after", str(default_s if hint_s is None else max(1, math.ceil(hint_s)))),)


def error_text(error: TsdbError) -> str:
    """The message, with the refused series if there are any, in at most TEXT_BYTES_MAX bytes of one line each."""
    lines = [error.message]
    if isinstance(error, RefusedRows):
        lines += [f"{offender.reason}: {offender.message}" for offender in error.offenders]
    text = "\n".join(line.replace("\n", " ") for line in lines).encode(errors="replace")
    return text[:TEXT_BYTES_MAX].decode(errors="ignore")


def text_answer(error: TsdbError) -> HttpAnswer:
    """The error as plain text."""
    return HttpAnswer(status_of(error), error_text(error).encode() + b"\n", headers=error_headers(error))


def partial_error(result: WriteResult) -> RefusedRows | None:
    """The error of a write that refused some rows; the others are on the log. None when it refused none.

    A source over its rate comes before all other reasons: the same request may succeed later.
    """
    if not result.refused_series:
        return None
    kind: Callable[..., RefusedRows]
    kind = SeriesOverLimit if result.refused.keys() <= SERIES_LIMIT_REASONS else RefusedSeries
    if result.retry_after_s is not None:
        kind = bound(SourceOverRate, retry_after_s=result.retry_after_s)
    counts = ", ".join(f"{reason}: {count}" for reason, count in sorted(result.refused.items()))
    return kind(
        f"{result.refused_series} series with {result.refused_samples} samples are refused ({counts}); the other "
        f"{result.samples} samples are stored",
        result.refused,
        result.offenders,
        reason=result.offenders[0].reason if result.offenders else "invalid_request",
    )
