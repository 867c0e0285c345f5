"""The Ingest service (proto/tsdb/v1/ingest.proto): wire bytes to rows, the pipeline, tokens back.

The services of writes share the steps of a call, from the caller's deadline to the wait for the log.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf.message import Message

from ingest.grpc.write_request import claimed_samples, decode_write_request
from ingest.native import NativeHistogramRule
from ingest.pipeline import AcceptedWrite, WritePipeline
from ingest.quota.token_quota import TokenQuota
from ingest.refusals import count_refused_request
from tsdb.model.errors import InvalidRequest
from tsdb.ops.grpc.auth import authorization_of
from tsdb.ops.grpc.server import GrpcService
from tsdb.ops.grpc.slots import step_aside
from tsdb.ops.lifecycle import Deadline
from tsdb.v1 import common_pb2, ingest_pb2

NAME = "tsdb.v1.Ingest"

WITHOUT_DEADLINE_S = 3600.0  # The timeout of the pipeline is shorter.
ANSWER_SHARE = 0.05  # Share of the caller's deadline kept for the answer, since a refusal contains the retry time.
Answer = TypeVar("Answer", bound=Message)


def ingest_service(
    pipeline: WritePipeline, tokens: TokenQuota | None = None, native_histograms: NativeHistogramRule = "keep"
) -> GrpcService:
    """The service for a server. tokens: checks a caller's token and rate before a request is read. native_histograms:
    with `classic` too they are refused, because a caller that sends one has chosen it."""
    keeps = native_histograms == "keep"
    return write_service(NAME, "Write", partial(write, pipeline, tokens, keeps=keeps), tokens, bytes)


def write(
    pipeline: WritePipeline,
    tokens: TokenQuota | None,
    message: bytes,
    context: grpc.ServicerContext,
    *,
    keeps: bool = True,
) -> ingest_pb2.WriteResponse:
    """Answers one call, on a thread of the server. message: a serialised WriteRequest. tsdb.ops.grpc.calls maps our
    errors to statuses. keeps: whether histograms and start timestamps are kept."""
    deadline = deadline_of(context)
    try:
        request = decode_write_request(message, pipeline.exemplars_max, keeps_details=keeps)
    except InvalidRequest as error:
        count_refused_request(error, claimed_samples(message))
        raise
    charge(tokens, context, request.rows.samples)
    return _response(written(pipeline.submit(request.rows, request.partial, deadline)))


def _response(result: AcceptedWrite) -> ingest_pb2.WriteResponse:
    return ingest_pb2.WriteResponse(
        tokens=[
            common_pb2.Token(topic_id=token.topic_id, partition=token.partition, record_offset=token.record_offset)
            for token in result.tokens
        ],
        samples=result.samples,
        refused_samples=result.refused_samples,
        exemplars=result.exemplars,
        refused_series=result.refused_series,
        retry_after_ms=0 if result.retry_after_s is None else max(1, round(1000 * result.retry_after_s)),
        offenders=[
            ingest_pb2.Offender(series_index=offender.series_index, reason=offender.reason, message=offender.message)
            for offender in result.offenders
        ],
    )


def write_service(
    name: str,
    method: str,
    write: Callable[[bytes, grpc.ServicerContext], Answer],
    tokens: TokenQuota | None,
    parse: Callable[[bytes], Any],
) -> GrpcService:
    """A gRPC service with one method, which takes the bytes of a request in place of the generated message.

    tokens: checks a caller's token and rate before a request is read. parse: gives the bytes; it decides how their
    memory is counted (tsdb.ops.grpc.messages).
    """

    def add(servicer: Callable[[bytes, grpc.ServicerContext], Answer], server: grpc.Server) -> None:
        handler = grpc.unary_unary_rpc_method_handler(
            servicer, request_deserializer=parse, response_serializer=lambda answer: answer.SerializeToString()
        )
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, {method: handler}),))

    admit = None if tokens is None else tokens.admit
    return GrpcService(name, write, add, patient=(method,), admit=admit)


def deadline_of(context: grpc.ServicerContext) -> Deadline:
    """The caller's deadline, less the time for the answer."""
    remaining_s = context.time_remaining()
    return Deadline.after(WITHOUT_DEADLINE_S if remaining_s is None else remaining_s * (1 - ANSWER_SHARE))


def charge(tokens: TokenQuota | None, context: grpc.ServicerContext, samples: int) -> None:
    """Count the samples of an admitted request for its token."""
    if tokens is not None and tokens.limited:
        tokens.charge(authorization_of(context.invocation_metadata()), samples)


def written(answer: Future[AcceptedWrite]) -> AcceptedWrite:
    """Wait for the log. Raises the error of the write."""
    if not answer.done():
        step_aside()  # The wait needs no core.
    try:
        return answer.result()
    finally:
        # Without this, an error, its traceback, this frame and the future keep each other alive, and with them the
        # request's bytes.
        del answer
