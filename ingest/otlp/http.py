"""OTLP over HTTP: `POST` of protobuf or JSON to the paths of Prometheus, Mimir and the Collector.

An SDK's exporter takes the whole address: OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://GATEWAY/api/v1/otlp/v1/metrics, or
OTEL_EXPORTER_OTLP_ENDPOINT=http://GATEWAY/api/v1/otlp, to which it adds /v1/metrics. The Collector's `otlphttp`
exporter takes the latter as `endpoint`. Both send protobuf with gzip by default, repeat 429 and 503 after Retry-After,
and give up after 400, 413 and 415.
"""

from __future__ import annotations

from ingest.http.protocol import Decoded, Outcome, WriteCall, WriteProtocol
from ingest.otlp.answers import JSON, PROTOBUF, ExportedPoints, count_export, http_answer, http_error, response
from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.wire.json_request import json_to_wire
from tsdb.ops.http.bodies import HttpAnswer

PATHS = ("/api/v1/otlp/v1/metrics", "/otlp/v1/metrics", "/v1/metrics")
JSON_COPIES = 8  # Memory of a JSON body as Python objects and as protobuf, by its size; VALUES_MAX bounds the rest.


def otlp_http(decoder: OtlpDecoder) -> WriteProtocol:
    """The protocol for the HTTP door."""

    def decode(call: WriteCall) -> Decoded:
        body = call.body
        if call.media_type.name == JSON:
            call.reserve(JSON_COPIES * len(body))
            body = json_to_wire(bytes(body))
        export = decoder.decode(body, call.reserve)
        return Decoded(export.rows, export.metadata, count_export(export))

    return WriteProtocol(
        name="otlp",
        paths=PATHS,
        content_types=frozenset({PROTOBUF, JSON}),
        encodings=frozenset({"", "identity", "gzip", "zstd"}),
        decode=decode,
        answer=answer,
    )


def answer(call: WriteCall, outcome: Outcome) -> HttpAnswer:
    """200 with an ExportMetricsServiceResponse, or the error as a Status; in the content type of the request."""
    detail = outcome.decoded.detail if outcome.decoded else None
    exported = detail if isinstance(detail, ExportedPoints) else None
    success = response(exported, outcome.result, outcome.error)
    if success is not None:
        return http_answer(call.media_type.name, success)
    assert outcome.error is not None, "a write without an error is a success"
    return http_error(call.media_type.name, outcome.error)
