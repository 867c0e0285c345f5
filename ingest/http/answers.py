"""Answers over HTTP: the status of each of our errors, the hint to retry, and the text of refused series.

A sender repeats a request after 429 and 503, and sends nothing else meanwhile. So both are for what waiting mends. A
refusal that the same request would meet again is 400, 413 or 415: its sender goes on with the next request.
"""

from __future__ import annotations

import math

from ingest.http.media import ENCODING, MEDIA_TYPE, VERSION
from ingest.pipeline import AcceptedWrite
from ingest.quota.source_quota import REASONS as SOURCE_RATES
from ingest.quota.token_quota import REASONS as TOKEN_RATES
from ingest.refusals import RefusedRows, refused_rows
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unauthenticated, Unavailable
from tsdb.ops.http.bodies import HttpAnswer
from tsdb.ops.http.sites import FORBIDDEN

RETRY_AFTER_S = 1
TEXT_BYTES_MAX = 4096
TOO_LARGE = frozenset(
    {"message_too_large", "request_too_large", "too_many_series", "too_many_samples", "record_too_large"}
)
UNSUPPORTED = frozenset({MEDIA_TYPE, ENCODING, VERSION})
METHOD = "method_not_allowed"
LENGTH = "length_required"
ELSEWHERE = frozenset({"clock", "draining"})  # Reasons that another gateway does not have.
CALLER_RATES = frozenset({*SOURCE_RATES, *TOKEN_RATES})


def status_of(error: TsdbError) -> int:
    """The status code of an error."""
    if isinstance(error, Unauthenticated):
        return 401
    if isinstance(error, InvalidRequest):
        return _invalid(error.reason)
    if isinstance(error, Overloaded):
        return 429 if error.reason in CALLER_RATES else 503  # A rate of the caller alone, or the load of the gateway.
    return 503 if isinstance(error, Unavailable) else 500


def _invalid(reason: str) -> int:
    if reason in UNSUPPORTED:
        return 415
    if reason in TOO_LARGE:
        return 413
    if reason in FORBIDDEN:
        return 403
    return {METHOD: 405, LENGTH: 411}.get(reason, 400)


def error_headers(error: TsdbError) -> tuple[tuple[str, str], ...]:
    """retry-after for 429 and 503, in whole seconds; connection for a gateway to leave; www-authenticate for 401."""
    status = status_of(error)
    if status == 401:
        return (("www-authenticate", "Bearer"),)
    if status not in (429, 503):
        return ()
    # A sender that keeps its connection would find this gateway again, behind whatever balances connections.
    elsewhere = (("connection", "close"),) if error.reason in ELSEWHERE else ()
    hint_s = getattr(error, "retry_after_s", None)
    return (("retry-after", str(RETRY_AFTER_S if hint_s is None else max(1, math.ceil(hint_s)))), *elsewhere)


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


def partial_error(result: AcceptedWrite) -> RefusedRows | None:
    """The error of a write that refused some rows; the others are on the log. None when it refused none.

    A source over its rate comes before all other reasons: the same request may succeed later.
    """
    if not result.refused_series:
        return None
    counts = ", ".join(f"{reason}: {count}" for reason, count in sorted(result.refused.items()))
    return refused_rows(
        result.retry_after_s,
        f"{result.refused_series} series with {result.refused_samples} samples are refused ({counts}); the other "
        f"{result.samples} samples are stored",
        result.refused,
        result.offenders,
        reason=result.offenders[0].reason if result.offenders else "invalid_request",
    )
