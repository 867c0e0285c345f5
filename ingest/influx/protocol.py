"""The Influx protocols of the HTTP receiver: they decode writes of line protocol in the forms of InfluxDB 1 and 2, and
answer the ping and what clients ask before they write.

A request whose lines are all stored is answered with 204, others with JSON in the form of the path's version.

Version 1 has `{"error": ...}`, version 2 `{"code": ..., "message": ...}`. Senders of version 1 throw a batch away
after any 4xx, so they get 503 in place of 429: nothing is lost by a limit that passes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace

from ingest.http.protocol import Decoded, Outcome, WriteCall, WriteProtocol, error_headers, status_of
from ingest.influx.lines import REASONS, LineReport, LineRules, decode_lines, parse_precision
from ingest.influx.queries import HEALTHY, answer_query, bearer, parameters
from ingest.refusals import RefusedRows
from tsdb.model.clock import Clock
from tsdb.model.errors import TsdbError
from tsdb.ops.http.bodies import HttpAnswer
from tsdb.ops.metrics import counter

WRITE_V1, WRITE_V2, PING, QUERY, HEALTH = "/write", "/api/v2/write", "/ping", "/query", "/health"
# Senders choose by it how to write; 1.8 accepts both forms of writes.
VERSION_HEADERS = (("x-influxdb-version", "1.8.10"), ("x-influxdb-build", "OSS"))
ENCODINGS = frozenset({"", "identity", "gzip", "zstd"})
READS = frozenset({"GET", "HEAD"})
_refused = counter(
    "tsdb_influx_refused_lines_total",
    "Lines of Influx line protocol that were refused as text; refused series are in tsdb_ingest_refused_samples_total.",
    "reason",
    [reason for reason, _ in REASONS.values()],
)
_strings = counter("tsdb_influx_strings_total", "Fields of Influx line protocol passed over: a sample is no string.")

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


def influx_protocols(rules: LineRules, clock: Clock) -> list[WriteProtocol]:
    """Writes and the ping. clock: the time of lines without a timestamp."""

    def decode(call: WriteCall) -> Decoded:
        query = parameters(call.head.query)
        precision = parse_precision(query.get("precision", ""))
        lines = decode_lines(
            call.body,
            precision,
            clock.now_ms(),
            replace(rules, label_bytes_max=call.body_bytes_max),
            database=query.get("bucket") or query.get("db") or "",
            reserve=call.reserve,
        )
        for reason, count in lines.report.refused.items():
            _refused.labels(reason).inc(count)
        _strings.inc(lines.report.strings)
        return Decoded(lines.rows, detail=lines.report)

    def ping(_call: WriteCall) -> HttpAnswer:
        return HttpAnswer(204, content_type="", headers=VERSION_HEADERS)

    write = WriteProtocol("influx", (WRITE_V1, WRITE_V2), None, ENCODINGS, decode, answer, authorization=bearer)
    return [
        write,
        WriteProtocol("influx_ping", (PING,), None, ENCODINGS, ping, answer, methods=READS, authorization=bearer),
    ]


def influx_preparations() -> list[WriteProtocol]:
    """Requests of clients before they write: queries about databases, and the state of health."""

    def query(call: WriteCall) -> HttpAnswer:
        status, body = answer_query(call.head.query, call.body, call.media_type.name)
        return HttpAnswer(status, body, "application/json", VERSION_HEADERS)

    def health(_call: WriteCall) -> HttpAnswer:
        return HttpAnswer(200, HEALTHY, "application/json", VERSION_HEADERS)

    return [
        WriteProtocol("influx_query", (QUERY,), None, ENCODINGS, query, answer, READS | {"POST"}, bearer),
        WriteProtocol("influx_health", (HEALTH,), None, ENCODINGS, health, answer, READS, bearer),
    ]


def answer(call: WriteCall, outcome: Outcome) -> HttpAnswer:
    """In the form of the version that the path belongs to."""
    return outcome_answer(2 if call.head.path == WRITE_V2 else 1, outcome)


def outcome_answer(version: int, outcome: Outcome) -> HttpAnswer:
    """The answer to a write. version: the version of the path, 1 or 2."""
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
    """Texts of the answer, one for each line. report: None when no line was refused."""
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
