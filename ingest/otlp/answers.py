"""Answers in OTLP's form: ExportMetricsServiceResponse, and google.rpc.Status for an error, as protobuf or JSON.

A request whose points are stored in part is a success with `partial_success`: senders do not repeat it. A request
whose points are all refused is an error.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from google.protobuf import json_format
from google.protobuf.message import Message
from numpy.typing import NDArray
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from ingest.http.answers import error_headers, error_text, status_of
from ingest.otlp.decode import Export
from ingest.pipeline import AcceptedWrite
from tsdb.model.errors import TsdbError
from tsdb.ops.grpc.errors import to_status
from tsdb.ops.http.bodies import HttpAnswer
from tsdb.ops.metrics import counter

PROTOBUF, JSON = "application/x-protobuf", "application/json"

_points = counter("tsdb_ingest_otlp_points_total", "Received data points of OTLP, refused ones too.")
_dropped = counter(
    "tsdb_ingest_otlp_dropped_total",
    "Parts of OTLP data points that are counted and not kept.",
    "kind",
    ("exemplar", "start_time"),
)


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
    _dropped.labels("exemplar").inc(export.exemplars)
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
    """Status 200 with the response."""
    return HttpAnswer(200, _encoded(media_type, answer), _content_type(media_type))


def http_error(media_type: str, error: TsdbError) -> HttpAnswer:
    """The status of the error; a Status as the body."""
    status = to_status(error)
    status.message = error_text(error)
    return HttpAnswer(status_of(error), _encoded(media_type, status), _content_type(media_type), error_headers(error))


def _encoded(media_type: str, message: Message) -> bytes:
    if media_type == PROTOBUF:
        return message.SerializeToString()
    return json_format.MessageToJson(message, indent=None).encode()


def _content_type(media_type: str) -> str:
    """That of the request; JSON for one that is not ours."""
    return PROTOBUF if media_type == PROTOBUF else JSON
