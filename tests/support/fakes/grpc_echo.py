"""A real gRPC server in this process around a servicer with answers and errors set by the test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc

from tsdb.ops.auth import Tokens
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.messages import MessageLimits
from tsdb.ops.grpc.server import GrpcLimits, GrpcServer, GrpcService, build_server
from tsdb.ops.tls import ServerTls
from tsdb.v1 import ingest_pb2, ingest_pb2_grpc, reader_pb2, reader_pb2_grpc

Act = Callable[[grpc.ServicerContext], None]


class _Reader(reader_pb2_grpc.ReaderServicer):
    """The methods that no test calls, and one that needs no slot."""

    def Select(self, request: Any, context: Any) -> Iterator[reader_pb2.SelectResponse]:
        raise NotImplementedError

    def Series(self, request: Any, context: Any) -> Iterator[reader_pb2.SeriesResponse]:
        raise NotImplementedError

    def LabelNames(self, request: Any, context: Any) -> reader_pb2.LabelNamesResponse:
        raise NotImplementedError

    def LabelValues(self, request: Any, context: Any) -> reader_pb2.LabelValuesResponse:
        raise NotImplementedError

    def Exemplars(self, request: Any, context: Any) -> Iterator[reader_pb2.ExemplarsResponse]:
        raise NotImplementedError

    def Cardinality(self, request: Any, context: Any) -> reader_pb2.CardinalityResponse:
        raise NotImplementedError

    def Query(self, request: Any, context: Any) -> Iterator[reader_pb2.QueryResponse]:
        raise NotImplementedError

    def Queries(self, request: Any, context: Any) -> reader_pb2.QueriesResponse:
        raise NotImplementedError

    def CancelQuery(self, request: Any, context: Any) -> reader_pb2.CancelQueryResponse:
        raise NotImplementedError

    def Coverage(self, request: Any, context: Any) -> reader_pb2.CoverageResponse:
        return reader_pb2.CoverageResponse()


class Scripted(ingest_pb2_grpc.IngestServicer, _Reader):
    """`act` runs at each call. A Watch then streams answers of `watch_bytes` bytes until `watch_on` returns False."""

    def __init__(
        self, act: Act = lambda context: None, watch_on: Callable[[], bool] = lambda: False, watch_bytes: int = 0
    ) -> None:
        self.act = act
        self.watch_on = watch_on
        self.watch_bytes = watch_bytes

    def Write(self, request: ingest_pb2.WriteRequest, context: Any) -> ingest_pb2.WriteResponse:
        self.act(context)
        return ingest_pb2.WriteResponse(samples=len(request.ts_ms) // 8)

    def LabelValues(self, request: Any, context: Any) -> reader_pb2.LabelValuesResponse:
        return reader_pb2.LabelValuesResponse(values=["v" * self.watch_bytes])

    def Watch(self, request: reader_pb2.WatchRequest, context: Any) -> Iterator[reader_pb2.WatchResponse]:
        self.act(context)
        while True:
            yield reader_pb2.WatchResponse(values=bytes(self.watch_bytes))
            if not self.watch_on():
                return


def scripted_services(servicer: Scripted, reads: MessageLimits | None = None) -> list[GrpcService]:
    add_reader = reader_pb2_grpc.add_ReaderServicer_to_server
    return [
        GrpcService("tsdb.v1.Ingest", servicer, ingest_pb2_grpc.add_IngestServicer_to_server),
        GrpcService("tsdb.v1.Reader", servicer, add_reader, always=("Coverage",), requests=reads),
    ]


@contextmanager
def scripted_server(
    servicer: Scripted,
    *,
    health: Health | None = None,
    tls: ServerTls | None = None,
    tokens: Tokens | None = None,
    limits: GrpcLimits | None = None,
    reads: MessageLimits | None = None,
    reflect: bool = True,
) -> Iterator[GrpcServer]:
    """A started server on a free loopback port."""
    with build_server(
        scripted_services(servicer, reads),
        host="127.0.0.1",
        port=0,
        health=health or Health(),
        reflect=reflect,
        tls=tls,
        tokens=tokens,
        limits=limits,
    ) as server:
        yield server


@contextmanager
def plain_channel(server: GrpcServer) -> Iterator[grpc.Channel]:
    """A channel without TLS."""
    with grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel:
        yield channel


def call_raw(channel: grpc.Channel, method: str, data: bytes) -> bytes:
    """Sends any bytes to any method. Returns the answer's bytes."""
    call = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
    answer: bytes = call(data, timeout=10)
    return answer


def write(channel: grpc.Channel, *, token: str | None = None, samples: int = 1) -> ingest_pb2.WriteResponse:
    """One Write of `samples` empty samples."""
    metadata = (("authorization", f"Bearer {token}"),) if token is not None else ()
    stub: Any = ingest_pb2_grpc.IngestStub(channel)
    answer: ingest_pb2.WriteResponse = stub.Write(
        ingest_pb2.WriteRequest(ts_ms=b"\0" * 8 * samples), timeout=10, metadata=metadata
    )
    return answer
