"""OTLP over gRPC: what was sent, the status or response, and what is on the log."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from grpc_status import rpc_status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2_grpc import MetricsServiceStub
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.mapping.names import OtlpRules
from ingest.otlp.receivers import MetricsService, metrics_service
from support.counters import sample
from support.data.otlp_requests import export_request, gauge, number_point
from support.fakes.fake_log import Fault
from support.oracles.otlp_twin import bits
from support.senders.write_receiver import WriteServer
from support.servers.gateways import NOW_MS, Bench
from tsdb.log.metadata import MetadataWriter
from tsdb.model.errors import InvalidRequest, Overloaded, TsdbError, Unavailable
from tsdb.model.family import Family
from tsdb.ops.byte_budget import RequestBytes
from tsdb.ops.grpc.errors import from_rpc_error
from tsdb.ops.grpc.health import Health
from tsdb.ops.grpc.server import build_server

METHOD = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
HELD = 64 << 20


@contextmanager
def served(held: int = HELD) -> Iterator[tuple[Any, WriteServer, int]]:
    """(stub, the log's contents, port) of a server with the service."""
    bench = Bench()
    families = MetadataWriter(bench.log, bench.clock).write
    decoder = OtlpDecoder(OtlpRules(delta="refuse"))
    service = MetricsService(decoder, bench.pipeline.submit, families, RequestBytes(held))
    with (
        build_server([metrics_service(service)], host="127.0.0.1", port=0, health=Health()) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}") as channel,
    ):
        yield MetricsServiceStub(channel), WriteServer(bench), server.port  # type: ignore[no-untyped-call]


def now(value: float = 1.0, **labels: Any) -> pb.NumberDataPoint:
    return number_point(value, NOW_MS, **labels)


def export(stub: Any, request: ExportMetricsServiceRequest, **options: Any) -> Any:
    """Raises our errors."""
    try:
        return stub.Export(request, timeout=60, **options)
    except grpc.RpcError as error:
        raise from_rpc_error(error) from error


GOOD = export_request(gauge(now(2.5, a="x"), unit="s"), service__name="api")
STORED = {'m_seconds{a="x",job="api"}': {NOW_MS: bits(2.5)}}


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_request_is_stored_with_its_families(compression: grpc.Compression) -> None:
    with served() as (stub, log, _):
        answer = export(stub, GOOD, compression=compression)
        assert not answer.HasField("partial_success")
        assert log.stored() == STORED
        assert log.families() == [Family("m_seconds", "gauge", "", "seconds")]
        assert not export(stub, ExportMetricsServiceRequest()).HasField("partial_success")


def test_a_request_that_is_stored_in_part_is_a_partial_success() -> None:
    late = [number_point(1.0, 5, b="y"), number_point(2.0, 5)]
    with served() as (stub, log, _):
        answer = export(stub, export_request(gauge(now(2.5, a="x"), *late, unit="s"), service__name="api"))
        assert answer.partial_success.rejected_data_points == 2
        assert "timestamp 5 (1970-01-01T00:00:00.005Z) is" in answer.partial_success.error_message
        assert log.stored() == STORED


def test_a_request_whose_points_are_all_refused_is_an_invalid_argument_that_names_one() -> None:
    data = pb.Sum(data_points=[now()], aggregation_temporality=pb.AGGREGATION_TEMPORALITY_DELTA)
    refused = sample("tsdb_ingest_refused_samples_total", reason="delta_temporality")
    with served() as (stub, log, _), pytest.raises(InvalidRequest, match="'d' has delta temporality") as caught:
        export(stub, export_request(pb.Metric(name="d", sum=data)))
    assert caught.value.reason == "delta_temporality"
    assert log.stored() == {}
    assert sample("tsdb_ingest_refused_samples_total", reason="delta_temporality") == refused + 1


def test_bytes_that_are_no_message_are_an_invalid_argument() -> None:
    requests = sample("tsdb_ingest_refused_requests_total", reason="malformed_request")
    with served() as (_, log, port), grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        raw = channel.unary_unary(METHOD, request_serializer=bytes, response_deserializer=bytes)
        with pytest.raises(grpc.RpcError) as caught:
            raw(b"\x0a\x05abc", timeout=60)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "at byte 0 of 5" in str(caught.value.details())
        assert log.stored() == {}
    assert sample("tsdb_ingest_refused_requests_total", reason="malformed_request") == requests + 1


ERRORS = [
    (Unavailable("no broker answers", retry_after_s=2.0), grpc.StatusCode.UNAVAILABLE),
    (Overloaded("the queue is full", reason="queue_full", retry_after_s=2.0), grpc.StatusCode.RESOURCE_EXHAUSTED),
]


@pytest.mark.parametrize(("error", "code"), ERRORS)
def test_errors_that_a_repetition_may_end_have_a_time_to_retry(error: TsdbError, code: grpc.StatusCode) -> None:
    with served() as (stub, log, _):
        log.bench.log.plan = lambda topic, partition, value: Fault(error)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Export(GOOD, timeout=60)
    assert caught.value.code() is code
    status, info = rpc_status.from_call(caught.value), RetryInfo()  # type: ignore[arg-type]
    assert status is not None
    assert any(detail.Unpack(info) for detail in status.details)
    assert info.retry_delay.seconds == 2


def test_tables_of_a_request_take_room_among_all_requests() -> None:
    before = sample("tsdb_request_bytes")
    with served(held=64 << 10) as (stub, log, _):
        with pytest.raises(InvalidRequest, match="bytes of memory; limit is") as caught:
            export(stub, export_request(gauge(*(now(n=n) for n in range(1000)))))
        assert caught.value.reason == "message_too_large"
        assert log.stored() == {}
        export(stub, GOOD)
    assert sample("tsdb_request_bytes") == before
