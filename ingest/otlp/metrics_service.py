"""OTLP over gRPC: MetricsService/Export, on the port of the other gRPC services.

An SDK's exporter takes OTEL_EXPORTER_OTLP_ENDPOINT=http://GATEWAY:PORT, the Collector's `otlp` exporter
`endpoint: GATEWAY:PORT`. Errors have RetryInfo where a repetition helps: senders then repeat UNAVAILABLE and
RESOURCE_EXHAUSTED.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import grpc
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse

from ingest.grpc.calls import charge, deadline_of, write_service, written
from ingest.http.answers import error_text, partial_error
from ingest.otlp.answers import ExportedPoints, count_export, response
from ingest.otlp.decode import Export, OtlpDecoder
from ingest.pipeline import AcceptedWrite, Submit
from ingest.quota.token_quota import TokenQuota
from ingest.refusals import count_refused_request
from tsdb.model.errors import TsdbError
from tsdb.model.family import Family
from tsdb.ops.grpc.messages import unparsed
from tsdb.ops.grpc.server import GrpcService
from tsdb.ops.request_bytes import RequestBytes, Reserved

NAME = "opentelemetry.proto.collector.metrics.v1.MetricsService"


class MetricsService:
    """Called on the server's threads. tsdb.ops.grpc.calls maps our errors to statuses.

    families: takes the metadata of a request and returns at once. held: the memory of all requests. tokens: asked
    before a request is read.
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
        error.message = error_text(error)  # With the first refused series: a status has no other place for them.
        raise error
    return success
