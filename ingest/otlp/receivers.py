"""OTLP over HTTP: accepts `POST` of protobuf or JSON at the paths of Prometheus, Mimir and the Collector.

An SDK's exporter takes the whole address: OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://GATEWAY/api/v1/otlp/v1/metrics, or
OTEL_EXPORTER_OTLP_ENDPOINT=http://GATEWAY/api/v1/otlp, to which it adds /v1/metrics. The Collector's `otlphttp`
exporter takes the latter as `endpoint`. Both send protobuf with gzip by default, repeat 429 and 503 after Retry-After,
and give up after 400, 413 and 415.

Over gRPC the method is MetricsService/Export, on the port of the other gRPC services.

An SDK's exporter takes OTEL_EXPORTER_OTLP_ENDPOINT=http://GATEWAY:PORT, the Collector's `otlp` exporter
`endpoint: GATEWAY:PORT`. Errors have RetryInfo where a repetition helps: senders then repeat UNAVAILABLE and
RESOURCE_EXHAUSTED.

Answers have OTLP's form: ExportMetricsServiceResponse, and google.rpc.Status for an error, as protobuf or JSON.

A request whose points are stored in part is a success with `partial_success`: senders do not repeat it. A request
whose points are all refused is an error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc
import numpy as np
from google.protobuf import json_format
from google.protobuf.message import Message
from numpy.typing import NDArray
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from ingest.grpc.service import charge, deadline_of, write_service, written
from ingest.http.protocol import (
    Decoded,
    Outcome,
    WriteCall,
    WriteProtocol,
    error_headers,
    error_text,
    partial_error,
    status_of,
)
from ingest.otlp.decode import Export, OtlpDecoder
from ingest.otlp.wire.json_request import json_to_wire
from ingest.pipeline import AcceptedWrite, Submit
from ingest.quota.token_quota import TokenQuota
from ingest.refusals import count_refused_request
from tsdb.model.errors import TsdbError
from tsdb.model.family import Family
from tsdb.ops.byte_budget import RequestBytes, Reserved
from tsdb.ops.grpc.errors import to_status
from tsdb.ops.grpc.messages import unparsed
from tsdb.ops.grpc.server import GrpcService
from tsdb.ops.http.bodies import HttpAnswer
from tsdb.ops.metrics import counter

PATHS = ("/api/v1/otlp/v1/metrics", "/otlp/v1/metrics", "/v1/metrics")
# A JSON body takes this multiple of its size as Python objects and as protobuf. VALUES_MAX bounds the rest.
JSON_COPIES = 8

NAME = "opentelemetry.proto.collector.metrics.v1.MetricsService"

PROTOBUF, JSON = "application/x-protobuf", "application/json"
_points = counter("tsdb_ingest_otlp_points_total", "Received data points of OTLP, refused ones too.")
_dropped = counter(
    "tsdb_ingest_otlp_dropped_total",
    "Parts of OTLP data points that are counted and not kept.",
    "kind",
    ("start_time",),
)


def otlp_http(decoder: OtlpDecoder) -> WriteProtocol:
    """Answer with 200 and an ExportMetricsServiceResponse, or with the error as a Status, in the content type of the
    request."""

    def decode(call: WriteCall) -> Decoded:
        body = call.body
        if call.media_type.name == JSON:
            call.reserve(JSON_COPIES * len(body))
            body = json_to_wire(bytes(body))
        export = decoder.decode(body, call.reserve, may_wait=call.may_wait)
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
    """Answers 200 with an ExportMetricsServiceResponse, or the error as a Status, in the content type of the
    request.
    """
    detail = outcome.decoded.detail if outcome.decoded else None
    exported = detail if isinstance(detail, ExportedPoints) else None
    success = response(exported, outcome.result, outcome.error)
    if success is not None:
        return http_answer(call.media_type.name, success)
    assert outcome.error is not None, "a write without an error is a success"
    return http_error(call.media_type.name, outcome.error)


class MetricsService:
    """Runs on the server's threads. tsdb.ops.grpc.calls maps our errors to statuses.

    families: receives the metadata of each request, and returns at once. held: the budget for the memory of all
    requests. tokens: checks a caller's token and rate before a request is read.
    """

    def __init__(
        self,
        decoder: OtlpDecoder,
        submit: Submit,
        families: Callable[[Sequence[Family]], None],
        held: RequestBytes,
        tokens: TokenQuota | None = None,
    ) -> None:
        self._decoder = decoder
        self._submit = submit
        self._families = families
        self._held = held
        self.tokens = tokens

    def export(self, message: bytes, context: grpc.ServicerContext) -> ExportMetricsServiceResponse:
        """message: a serialised ExportMetricsServiceRequest."""
        deadline = deadline_of(context)
        reserved = Reserved(self._held)
        try:
            export = self._decoded(message, reserved)
            exported = count_export(export)
            charge(self.tokens, context, export.rows.samples)
            self._families(export.metadata)
            if not len(export.rows):
                return ExportMetricsServiceResponse()
            future = self._submit(export.rows, True, deadline)
            del export
        finally:
            reserved.give_back()  # The pipeline has its own reservation.
        return _answer(exported, written(future))

    def _decoded(self, message: bytes, reserved: Reserved) -> Export:
        try:
            return self._decoder.decode(message, lambda size: reserved.set(reserved.size + size))
        except TsdbError as error:
            count_refused_request(error, 0)
            raise


def metrics_service(service: MetricsService) -> GrpcService:
    """The service for a server."""
    return write_service(NAME, "Export", service.export, service.tokens, unparsed)


def _answer(exported: ExportedPoints, result: AcceptedWrite) -> ExportMetricsServiceResponse:
    error = partial_error(result)
    success = response(exported, result, error)
    if success is None:
        assert error is not None, "a write without an error is a success"
        # The message has the first refused series, because a status has no other field for it.
        error.message = error_text(error)
        raise error
    return success


@dataclass(frozen=True, slots=True)
class ExportedPoints:
    """points: number of the request's data points. row_points: int64 (rows,), the point of each row, or -1."""

    points: int
    row_points: NDArray[np.int64]

    def rejected(self, result: AcceptedWrite) -> int:
        """Data points with a refused series."""
        rows = np.fromiter(result.refused_rows, np.int64, len(result.refused_rows))
        points = self.row_points[rows]
        return len(np.unique(points[points >= 0]))


def count_export(export: Export) -> ExportedPoints:
    """Count a decoded request."""
    _points.inc(export.points)
    _dropped.labels("start_time").inc(export.start_times)
    return ExportedPoints(export.points, export.row_points)


def response(
    exported: ExportedPoints | None, result: AcceptedWrite | None, error: TsdbError | None
) -> ExportMetricsServiceResponse | None:
    """The answer of a success; None when the error is the answer."""
    answer = ExportMetricsServiceResponse()
    if error is None:
        return answer
    if exported is None or result is None:
        return None
    rejected = exported.rejected(result)
    if rejected and rejected == exported.points:
        return None
    answer.partial_success.rejected_data_points = rejected
    answer.partial_success.error_message = error_text(error)
    return answer


def http_answer(media_type: str, answer: Message) -> HttpAnswer:
    """The status of the error, with a Status message as the body."""
    return HttpAnswer(200, _encoded(media_type, answer), _content_type(media_type))


def http_error(media_type: str, error: TsdbError) -> HttpAnswer:
    """The HTTP status of an error, and a Status message as the body."""
    status = to_status(error)
    status.message = error_text(error)
    return HttpAnswer(status_of(error), _encoded(media_type, status), _content_type(media_type), error_headers(error))


def _encoded(media_type: str, message: Message) -> bytes:
    if media_type == PROTOBUF:
        return message.SerializeToString()
    return json_format.MessageToJson(message, indent=None).encode()


def _content_type(media_type: str) -> str:
    """Content type of the request; JSON when the request has another one."""
    return PROTOBUF if media_type == PROTOBUF else JSON
