"""The Influx protocols of the HTTP door: writes of line protocol in the forms of InfluxDB 1 and 2, and the ping."""

from __future__ import annotations

from dataclasses import replace

from ingest.http.protocol import Decoded, Outcome, WriteCall, WriteProtocol
from ingest.influx.answers import outcome_answer
from ingest.influx.authorization import bearer, parameters
from ingest.influx.lines import REASONS, LineRules, decode_lines
from ingest.influx.precision import parse_precision
from tsdb.model.clock import Clock
from tsdb.ops.http.bodies import HttpAnswer
from tsdb.ops.metrics import counter

WRITE_V1, WRITE_V2, PING = "/write", "/api/v2/write", "/ping"
# Senders choose by it how to write; 1.8 accepts both forms of writes.
VERSION_HEADERS = (("x-influxdb-version", "1.8.10"), ("x-influxdb-build", "OSS"))
ENCODINGS = frozenset({"", "identity", "gzip", "zstd"})

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

    def answer(call: WriteCall, outcome: Outcome) -> HttpAnswer:
        return outcome_answer(2 if call.head.path == WRITE_V2 else 1, outcome)

    def ping(_call: WriteCall) -> HttpAnswer:
        return HttpAnswer(204, content_type="", headers=VERSION_HEADERS)

    write = WriteProtocol("influx", (WRITE_V1, WRITE_V2), None, ENCODINGS, decode, answer, authorization=bearer)
    pings = frozenset({"GET", "HEAD"})
    return [
        write,
        WriteProtocol("influx_ping", (PING,), None, ENCODINGS, ping, answer, methods=pings, authorization=bearer),
    ]
