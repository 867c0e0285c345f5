"""A gateway behind a real gRPC server of this process, and calls to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import grpc
import numpy as np

from ingest.grpc.service import ingest_service
from ingest.native import NativeHistogramRule
from ingest.pipeline import WritePipeline
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import GrpcServer, build_server
from tsdb.v1 import ingest_pb2, ingest_pb2_grpc

WRITE = "/tsdb.v1.Ingest/Write"


@contextmanager
def gateway_server(pipeline: WritePipeline, native_histograms: NativeHistogramRule = "keep") -> Iterator[GrpcServer]:
    """A started server on a free loopback port."""
    services = [ingest_service(pipeline, native_histograms=native_histograms)]
    with build_server(services, host="127.0.0.1", port=0, health=Health()) as server:
        yield server


@contextmanager
def ingest_stub(port: int) -> Iterator[Any]:
    """A stub on a new channel."""
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        yield ingest_pb2_grpc.IngestStub(channel)


def write_request(
    labels: Sequence[bytes], ts_ms: Sequence[int], values: Sequence[float] | None = None, **fields: Any
) -> ingest_pb2.WriteRequest:
    """One sample a series unless sample_counts says otherwise."""
    given = np.arange(len(ts_ms), dtype="<f8") if values is None else np.array(values, "<f8")
    return ingest_pb2.WriteRequest(
        labels=labels, ts_ms=np.array(ts_ms, "<i8").tobytes(), values=given.tobytes(), **fields
    )


def call(stub: Any, request: ingest_pb2.WriteRequest, timeout_s: float | None = 10.0) -> ingest_pb2.WriteResponse:
    """Write; raises our errors."""
    try:
        answer: ingest_pb2.WriteResponse = stub.Write(request, timeout=timeout_s)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error
    return answer
