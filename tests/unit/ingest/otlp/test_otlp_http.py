"""OTLP over HTTP, one rule a row: what was sent, the status, the answer in OTLP's form, and what is on the log."""

from __future__ import annotations

import gzip
import http.client
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest
import zstandard
from google.protobuf import json_format
from google.rpc.status_pb2 import Status
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ingest.limits import IngestLimits, SeriesLimits
from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.mapping.names import OtlpRules
from ingest.otlp.receivers import PATHS, otlp_http
from support.counters import sample
from support.data.otlp_requests import attributes, export_request, gauge, number_point
from support.fakes.fake_log import Fault
from support.oracles.otlp_twin import bits
from support.senders.write_receiver import WriteServer, write_server
from support.servers.gateways import NOW_MS, Bench
from tsdb.model.errors import Unavailable
from tsdb.model.family import Family
from tsdb.ops.auth import Tokens

PROTOBUF, JSON = "application/x-protobuf", "application/json"
DAY_MS = 86_400_000
REFUSES_DELTAS = OtlpRules(delta="refuse")


@dataclass
class Reply:
    status: int
    body: bytes
    headers: dict[str, str]

    @property
    def media_type(self) -> str:
        return self.headers.get("content-type", "")

    @property
    def response(self) -> ExportMetricsServiceResponse:
        found = ExportMetricsServiceResponse()
        self._parse(found)
        return found

    @property
    def error(self) -> Status:
        found = Status()
        self._parse(found)
        return found

    def _parse(self, message: Any) -> None:
        if self.media_type == JSON:
            json_format.Parse(self.body, message)
        else:
            assert self.media_type == PROTOBUF
            message.ParseFromString(self.body)


def post(server: WriteServer, body: bytes, path: str = PATHS[0], method: str = "POST", **headers: str) -> Reply:
    named = {"content-type": PROTOBUF} | {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {name: value for name, value in named.items() if value}
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)) as connection:
        connection.request(method, path, body, sent)
        got = connection.getresponse()
        return Reply(got.status, got.read(), {name.lower(): value for name, value in got.getheaders()})


def protocol(_limits: IngestLimits) -> Any:
    return otlp_http(OtlpDecoder(REFUSES_DELTAS))


@pytest.fixture
def server() -> Iterator[WriteServer]:
    with write_server(protocol) as found:
        yield found


def now(value: float = 1.0, ts_ms: int = NOW_MS, **labels: Any) -> pb.NumberDataPoint:
    return number_point(value, ts_ms, **labels)


GOOD = export_request(gauge(now(2.5, a="x"), unit="s"), service__name="api")
STORED = {'m_seconds{a="x",job="api"}': {NOW_MS: bits(2.5)}}
WIRE = GOOD.SerializeToString()
AS_JSON = json_format.MessageToJson(GOOD).encode()


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("kind", [PROTOBUF, JSON, "Application/JSON; charset=utf-8"])
@pytest.mark.parametrize("coding", ["", "identity", "gzip", "zstd"])
def test_each_path_type_and_encoding_is_stored(server: WriteServer, path: str, kind: str, coding: str) -> None:
    body = WIRE if kind == PROTOBUF else AS_JSON
    packed = {"gzip": gzip.compress(body), "zstd": zstandard.compress(body)}.get(coding, body)
    reply = post(server, packed, path, content_type=kind, content_encoding=coding)
    assert (reply.status, reply.body) == (200, b"" if kind == PROTOBUF else b"{}")
    assert reply.media_type == (PROTOBUF if kind == PROTOBUF else JSON)
    assert server.stored() == STORED


def test_families_reach_the_topic_of_metadata(server: WriteServer) -> None:
    post(server, WIRE)
    post(server, WIRE)
    assert server.families() == [Family("m_seconds", "gauge", "", "seconds")]


@pytest.mark.parametrize("body", [b"", export_request(gauge()).SerializeToString()])
def test_a_request_without_points_is_a_success(server: WriteServer, body: bytes) -> None:
    assert post(server, body).status == 200
    assert post(server, b"{}", content_type=JSON).status == 200
    assert server.stored() == {}


def with_labels(count: int) -> pb.NumberDataPoint:
    point = now()
    point.attributes.extend(attributes({f"k{i}": "v" for i in range(count)}))
    return point


def delta(*points: pb.NumberDataPoint) -> pb.Metric:
    return pb.Metric(name="d", sum=pb.Sum(data_points=points, aggregation_temporality=pb.AGGREGATION_TEMPORALITY_DELTA))


def many_buckets(ts_ms: int) -> pb.Metric:
    point = pb.HistogramDataPoint(
        time_unix_nano=ts_ms * 10**6, count=1, bucket_counts=[1] * 40, explicit_bounds=map(float, range(39))
    )
    data = pb.Histogram(data_points=[point], aggregation_temporality=pb.AGGREGATION_TEMPORALITY_CUMULATIVE)
    return pb.Metric(name="h", histogram=data)


PARTLY = {
    "delta": (delta(now(), now(b="y")), 2, "delta temporality"),
    "too old": (gauge(now(ts_ms=NOW_MS - 30 * DAY_MS), name="x"), 1, "is 30.0 days old; the limit is 5 days"),
    "in the future": (gauge(now(ts_ms=NOW_MS + DAY_MS), name="x"), 1, "ahead of now"),
    "no time": (gauge(now(ts_ms=0), name="x"), 1, "timestamp 0"),
    "reserved label": (gauge(now(__aggr__="y"), name="x"), 1, "reserved"),
    "long label": (gauge(now(k="v" * 5000), name="x"), 1, "limit is 2048"),
    "many labels": (gauge(with_labels(70), name="x"), 1, "limit is 64"),
    "all buckets of an old histogram": (many_buckets(NOW_MS - 30 * DAY_MS), 1, "41 series with 41 samples"),
}


@pytest.mark.parametrize("case", PARTLY)
@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_a_request_that_is_stored_in_part_is_a_partial_success(server: WriteServer, case: str, kind: str) -> None:
    metric, rejected, text = PARTLY[case]
    request = export_request(gauge(now(2.5, a="x"), unit="s"), metric, service__name="api")
    body = request.SerializeToString() if kind == PROTOBUF else json_format.MessageToJson(request).encode()
    reply = post(server, body, content_type=kind)
    assert reply.status == 200
    assert reply.response.partial_success.rejected_data_points == rejected
    assert text in reply.response.partial_success.error_message
    assert server.stored() == STORED


def test_a_refused_target_info_rejects_no_point(server: WriteServer) -> None:
    many = {f"k{i}": "v" for i in range(70)}
    reply = post(server, export_request(gauge(now(2.5)), service__name="api", **many).SerializeToString())
    assert reply.status == 200
    assert reply.response.partial_success.rejected_data_points == 0
    assert "limit is 64" in reply.response.partial_success.error_message
    assert server.stored() == {'m{job="api"}': {NOW_MS: bits(2.5)}}


DELTA = export_request(delta(now())).SerializeToString()
# Body, headers, status, text. Large bodies are made by their test: every process of a run imports this file.
REFUSED: dict[str, tuple[bytes | Callable[[], bytes], dict[str, str], int, str]] = {
    "corrupt protobuf": (b"\x0a\x05abc", {}, 400, "breaks the protobuf format at byte 0 of 5"),
    "corrupt JSON": (b'{"resourceMetrics": [}', {"content_type": JSON}, 400, "it is no JSON at byte 21"),
    "JSON of another form": (b"[]", {"content_type": JSON}, 400, "an object is expected"),
    "corrupt gzip": (b"\x1f\x8b" + bytes(30), {"content_encoding": "gzip"}, 400, "gzip data does not expand"),
    "corrupt zstd": (b"x" * 30, {"content_encoding": "zstd"}, 400, "zstd data does not expand"),
    "every point refused": (DELTA, {}, 400, "delta temporality"),
    "too large": (lambda: bytes(17 << 20), {}, 413, "limit is 16777216"),
    "a bomb": (lambda: gzip.compress(bytes(64 << 20)), {"content_encoding": "gzip"}, 413, "limit is 16777216"),
    "too many series": (
        lambda: export_request(gauge(*[pb.NumberDataPoint()] * 100_001)).SerializeToString(), {}, 413,
        "100001 series; limit is 100000",
    ),
    "another type": (WIRE, {"content_type": "text/plain"}, 415, "text/plain"),
    "no type": (WIRE, {"content_type": ""}, 415, "content-type"),
    "snappy": (WIRE, {"content_encoding": "snappy"}, 415, "snappy"),
    "another method": (b"", {"method": "GET"}, 405, "GET"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_an_error_is_a_status_in_the_type_of_the_request(server: WriteServer, case: str) -> None:
    body, headers, status, text = REFUSED[case]
    reply = post(server, body() if callable(body) else body, **headers)
    assert reply.status == status
    assert reply.media_type == (PROTOBUF if headers.get("content_type", PROTOBUF) == PROTOBUF else JSON)
    assert text in reply.error.message
    assert reply.error.code == 3  # INVALID_ARGUMENT.
    assert server.stored() == {}


@pytest.mark.parametrize("kind", [PROTOBUF, JSON])
def test_a_log_that_is_away_is_503_with_a_time_to_retry(server: WriteServer, kind: str) -> None:
    server.bench.log.plan = lambda topic, partition, value: Fault(Unavailable("the log is away"))
    reply = post(server, WIRE if kind == PROTOBUF else AS_JSON, content_type=kind)
    assert reply.status == 503
    assert int(reply.headers["retry-after"]) >= 1
    assert reply.error.code == 14  # UNAVAILABLE.


def test_new_series_over_the_limit_of_a_source_are_400_since_no_wait_mends_it() -> None:
    limits = IngestLimits(series=SeriesLimits(source_series_max=1))
    with write_server(protocol, bench=Bench(limits=limits)) as server:
        assert post(server, WIRE).status == 200
        reply = post(server, export_request(gauge(now(), name="new"), service__name="api").SerializeToString())
        assert (reply.status, reply.error.code) == (400, 3)  # INVALID_ARGUMENT.
        assert "retry-after" not in reply.headers
        assert server.stored() == STORED


def test_a_wrong_token_is_401() -> None:
    with write_server(protocol, tokens=Tokens(text="right")) as server:
        assert post(server, WIRE, authorization="Bearer wrong").status == 401
        assert server.stored() == {}
        assert post(server, WIRE, authorization="Bearer right").status == 200


def test_points_and_their_dropped_parts_are_counted(server: WriteServer) -> None:
    point = now()
    point.start_time_unix_nano = 5
    points = sample("tsdb_ingest_otlp_points_total")
    dropped = sample("tsdb_ingest_otlp_dropped_total", kind="start_time")
    refused = sample("tsdb_ingest_refused_samples_total", reason="delta_temporality")
    post(server, export_request(gauge(point, now(a="1")), delta(now())).SerializeToString())
    assert sample("tsdb_ingest_otlp_points_total") == points + 3
    assert sample("tsdb_ingest_otlp_dropped_total", kind="start_time") == dropped + 1
    assert sample("tsdb_ingest_refused_samples_total", reason="delta_temporality") == refused + 1


def test_deeply_nested_json_is_refused_and_the_next_request_is_served(server: WriteServer) -> None:
    reply = post(server, b'{"resourceMetrics":' + b"[" * 100_000, content_type=JSON)
    assert reply.status == 400
    assert post(server, WIRE).status == 200


def test_refused_delta_temporality_is_logged_once_a_minute_and_source(caplog: pytest.LogCaptureFixture) -> None:
    at = [0.0]
    decoder = OtlpDecoder(REFUSES_DELTAS, monotonic=lambda: at[0])

    def lines(service: str) -> int:
        caplog.clear()
        request = export_request(delta(now()), delta(now()), service__name=service, service__instance__id="1")
        decoder.decode(request.SerializeToString())
        return sum("delta temporality is refused" in record.getMessage() for record in caplog.records)

    assert [lines("api"), lines("api"), lines("web")] == [1, 0, 1]
    at[0] = 59.9
    assert lines("api") == 0
    at[0] = 60.0
    assert lines("api") == 1
    assert "api/1" not in caplog.text
    assert 'job="api",instance="1"' in caplog.text
