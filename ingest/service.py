"""The Ingest service (proto/tsdb/v1/ingest.proto): converts bytes to arrays, calls the pipeline, returns tokens."""

from __future__ import annotations

from typing import TypeVar

import grpc
import numpy as np
from numpy.typing import NDArray

from ingest.pipeline import WritePipeline, WriteResult
from ingest.refusals import count_refused_request
from tsdb.model.errors import InvalidRequest
from tsdb.ops.lifecycle import Deadline
from tsdb.v1 import common_pb2, ingest_pb2, ingest_pb2_grpc

_Scalar = TypeVar("_Scalar", np.uint32, np.int64, np.float64)

WITHOUT_DEADLINE_S = 3600.0  # The pipeline's own timeout comes first.
ANSWER_SHARE = 0.05  # Share of the caller's deadline kept for the answer, since a refusal contains the retry time.


class IngestService(ingest_pb2_grpc.IngestServicer):
    """Called on the server's threads. tsdb.ops.grpc.calls maps our errors to statuses."""

    def __init__(self, pipeline: WritePipeline) -> None:
        self._pipeline = pipeline

    def Write(self, request: ingest_pb2.WriteRequest, context: grpc.ServicerContext) -> ingest_pb2.WriteResponse:
        remaining_s = context.time_remaining()
        deadline = Deadline.after(WITHOUT_DEADLINE_S if remaining_s is None else remaining_s * (1 - ANSWER_SHARE))
        counts, ts_ms, values = _arrays(request)
        return _response(self._pipeline.write(list(request.labels), counts, ts_ms, values, request.partial, deadline))


def _arrays(
    request: ingest_pb2.WriteRequest,
) -> tuple[NDArray[np.uint32] | None, NDArray[np.int64], NDArray[np.float64]]:
    """Counts (None: one each), timestamps and values of a request."""
    try:
        counts = _array("sample_counts", request.sample_counts, np.uint32) if request.sample_counts else None
        return counts, _array("ts_ms", request.ts_ms, np.int64), _array("values", request.values, np.float64)
    except InvalidRequest as error:
        count_refused_request(error, len(request.ts_ms) // 8)
        raise


def _array(name: str, data: bytes, scalar: type[_Scalar]) -> NDArray[_Scalar]:
    """`data` as a packed little-endian array, read-only, without a copy."""
    dtype = np.dtype(scalar).newbyteorder("<")
    if len(data) % dtype.itemsize:
        raise InvalidRequest(
            f"{name} has {len(data)} bytes, which is no whole number of {dtype.itemsize}-byte values",
            reason="malformed_request",
            field=name,
        )
    return np.frombuffer(data, dtype)


def _response(result: WriteResult) -> ingest_pb2.WriteResponse:
    return ingest_pb2.WriteResponse(
        tokens=[
            common_pb2.Token(topic_id=token.topic_id, partition=token.partition, record_offset=token.record_offset)
            for token in result.tokens
        ],
        samples=result.samples,
        refused_samples=result.refused_samples,
        refused_series=result.refused_series,
        offenders=[
            ingest_pb2.Offender(series_index=offender.series_index, reason=offender.reason, message=offender.message)
            for offender in result.offenders
        ],
    )
