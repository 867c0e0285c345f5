"""Answers to InfluxDB's senders: 204 when all lines are stored, else JSON in the form of the path's version.

Version 1 has `{"error": ...}`, version 2 `{"code": ..., "message": ...}`. Senders of version 1 throw a batch away
after any 4xx, so they get 503 in place of 429: nothing is lost by a limit that passes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from ingest.http.answers import error_headers, status_of
from ingest.http.protocol import Outcome
from ingest.influx.lines import LineReport
from ingest.refusals import RefusedRows
from tsdb.model.errors import TsdbError
from tsdb.ops.http.bodies import HttpAnswer

TEXT_BYTES_MAX = 4096
STORED = HttpAnswer(204, content_type="")

_CODES: Mapping[int, str] = {
    400: "invalid",
    401: "unauthorized",
    405: "method not allowed",
    413: "request too large",
    415: "unsupported media type",
    429: "too many requests",
    500: "internal error",
    503: "unavailable",
}


def outcome_answer(version: int, outcome: Outcome) -> HttpAnswer:
    """The answer to a write; version: 1 or 2, of the path."""
    report = outcome.decoded.detail if outcome.decoded is not None else None
    assert report is None or isinstance(report, LineReport)
    refused = sum(report.refused.values()) if report else 0
    if outcome.error is None and not refused:
        return STORED
    status = 400 if outcome.error is None else status_of(outcome.error)
    if version == 1 and status == 429:
        status = 503
    text = "\n".join(_texts(outcome, report if refused else None, outcome.error))
    return HttpAnswer(
        status,
        _json(version, status, text.encode(errors="replace")[:TEXT_BYTES_MAX].decode(errors="ignore")),
        "application/json",
        () if outcome.error is None else error_headers(outcome.error),
    )


def _texts(outcome: Outcome, report: LineReport | None, error: TsdbError | None) -> Iterator[str]:
    """One text a line of the answer; report: None without refused lines."""
    stored = outcome.result.samples if outcome.result else 0
    if stored:
        yield f"partial write: {stored} samples are stored"
    if report:
        counts = ", ".join(f"{reason}: {count}" for reason, count in sorted(report.refused.items()))
        yield f"{sum(report.refused.values())} lines are refused ({counts})"
        yield from (line.message for line in report.listed)
    if error is not None:
        yield error.message
        yield from _offenders(outcome, error)


def _offenders(outcome: Outcome, error: TsdbError) -> Iterator[str]:
    if not isinstance(error, RefusedRows):
        return
    report = outcome.decoded.detail if outcome.decoded is not None else None
    for offender in error.offenders:
        line = f"line {report.lines[offender.series_index]}: " if isinstance(report, LineReport) else ""
        yield f"{line}{offender.reason}: {offender.message}"


def _json(version: int, status: int, text: str) -> bytes:
    body = {"error": text} if version == 1 else {"code": _CODES.get(status, "internal error"), "message": text}
    return json.dumps(body).encode() + b"\n"
