"""The Influx protocols of the HTTP door: writes of line protocol in the forms of InfluxDB 1 and 2, the ping, and the
answers that clients want before they write."""

from __future__ import annotations

from dataclasses import replace

from ingest.http.protocol import Decoded, Outcome, WriteCall, WriteProtocol
from ingest.influx.answers import outcome_answer
from ingest.influx.authorization import bearer, parameters
from ingest.influx.lines import REASONS, LineRules, decode_lines
from ingest.influx.precision import parse_precision
from ingest.influx.queries import HEALTHY, answer_query
from tsdb.model.clock import Clock
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
