"""The Ingest service (proto/tsdb/v1/ingest.proto): wire bytes to rows, the pipeline, tokens back."""

from __future__ import annotations

import grpc

from ingest.grpc.calls import charge, deadline_of, write_service, written
from ingest.grpc.write_request import claimed_samples, decode_write_request
from ingest.pipeline import AcceptedWrite, WritePipeline
from ingest.quota.token_quota import TokenQuota
from ingest.refusals import count_refused_request
from tsdb.model.errors import InvalidRequest
from tsdb.ops.grpc.server import GrpcService
from tsdb.v1 import common_pb2, ingest_pb2

NAME = "tsdb.v1.Ingest"


class IngestService:
    """Called on the server's threads. tsdb.ops.grpc.calls maps our errors to statuses."""

    def __init__(self, pipeline: WritePipeline, tokens: TokenQuota | None = None) -> None:
        self._pipeline = pipeline
        self._tokens = tokens

    def write(self, message: bytes, context: grpc.ServicerContext) -> ingest_pb2.WriteResponse:
        """message: a serialised WriteRequest."""
        deadline = deadline_of(context)
        try:
            request = decode_write_request(message)
        except InvalidRequest as error:
            count_refused_request(error, claimed_samples(message))
            raise
        charge(self._tokens, context, request.rows.samples)
        return _response(written(self._pipeline.submit(request.rows, request.partial, deadline)))


def ingest_service(pipeline: WritePipeline, tokens: TokenQuota | None = None) -> GrpcService:
    """The service for a server. tokens: asked before a request is read."""
    return write_service(NAME, "Write", IngestService(pipeline, tokens).write, tokens, bytes)


def _response(result: AcceptedWrite) -> ingest_pb2.WriteResponse:
    return ingest_pb2.WriteResponse(
        tokens=[
            common_pb2.Token(topic_id=token.topic_id, partition=token.partition, record_offset=token.record_offset)
            for token in result.tokens
        ],
        samples=result.samples,
        refused_samples=result.refused_samples,
        refused_series=result.refused_series,
        retry_after_ms=0 if result.retry_after_s is None else max(1, round(1000 * result.retry_after_s)),
        offenders=[
            ingest_pb2.Offender(series_index=offender.series_index, reason=offender.reason, message=offender.message)
            for offender in result.offenders
        ],
    )
