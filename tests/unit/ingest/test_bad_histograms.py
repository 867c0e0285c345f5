"""Bad native histograms in remote write 1.0 and 2.0 and OTLP: each is refused by name and counted, or kept
as Prometheus keeps them. The other samples of a request are stored, and no claim takes memory.
"""

from __future__ import annotations

import http.client
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ingest.limits import IngestLimits
from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.mapping.names import OtlpRules
from ingest.otlp.receivers import PATHS, otlp_http
from ingest.remote_write.histograms import decode_histograms
from ingest.remote_write.protocol import PATH, remote_write
from ingest.remote_write.wire import decode_wire
from support.counters import sample
from support.data.otlp_requests import export_request, gauge, number_point
from support.senders.remote_write import TWO, add_histogram, request_1, request_2, snappy
from support.senders.write_receiver import HttpReply, WriteServer, write_server
from support.servers.gateways import NOW_MS
from tsdb.codec.records.log_record import decode_records
from tsdb.model.details import SampleDetails
from tsdb.model.histograms import HistogramColumns
from tsdb.model.labels import format_series
from tsdb.model.stale import STALE

V1 = "application/x-protobuf"
V2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
NAN = float("nan")
Make = Callable[..., Any]
BOTH = pytest.mark.parametrize("make", [request_1, request_2], ids=["1.0", "2.0"])


@pytest.fixture(scope="module")
def server() -> Iterator[WriteServer]:
    with write_server(
        lambda limits: remote_write(limits, native_histograms="keep"),
        lambda limits: otlp_http(OtlpDecoder(OtlpRules(native_histograms="keep"))),
    ) as running:
        yield running


def send(server: WriteServer, message: Any) -> HttpReply:
    kind = V2 if isinstance(message, TWO["Request"]) else V1
    return server.post(PATH, snappy(message), content_type=kind, content_encoding="snappy")


def refused(reason: str) -> float:
    return sample("tsdb_ingest_refused_samples_total", reason=reason)


def stored(server: WriteServer, name: str) -> dict[int, tuple[float, SampleDetails | None]]:
    """(value, details) by time of the series with this name."""
    names = {one.series_id: format_series(one.canonical) for one in server.bench.log.announcements()}
    found = {}
    for record in server.bench.log.of("metrics"):
        decoded = decode_records(record.value, np.array([0, len(record.value)], np.int64))
        assert decoded.all_ok
        for at, series in enumerate(decoded.series_id.tolist()):
            if names[series] == name:
                details = decoded.details and decoded.details.part(at, at + 1)
                found[int(decoded.ts_ms[at])] = float(decoded.value[at]), details
    return found


def histogram_of(server: WriteServer, name: str, ts_ms: int = NOW_MS) -> HistogramColumns:
    _, details = stored(server, name)[ts_ms]
    assert details is not None
    assert details.histograms is not None
    return details.histograms


def fill(one: Any, *, schema: int = 0, count: int = 3, offset: int = 0, length: int = 2, deltas: Any = (1, 1)) -> None:
    """Fill in an integer histogram of NOW_MS."""
    one.schema, one.count_int, one.timestamp = schema, count, NOW_MS
    one.positive_spans.add(offset=offset, length=length)
    one.positive_deltas.extend(deltas)


def overlapping(one: Any) -> None:
    fill(one, count=4, deltas=(1, 1, -1))
    one.positive_spans.add(offset=-1, length=1)


def negative_count(one: Any) -> None:
    one.count_float, one.timestamp = -1.0, NOW_MS


def negative_zeros(one: Any) -> None:
    one.count_float, one.zero_count_float, one.timestamp = 1.0, -1.0, NOW_MS


def nan_sum_and_few(one: Any) -> None:
    fill(one, count=2)
    one.sum = NAN


def of_bounds(one: Any, *bounds: float) -> None:
    fill(one, schema=-53)
    one.custom_values.extend(bounds)


def unknown_hint(one: Any) -> None:
    fill(one)
    one.reset_hint = 9


REFUSED: dict[str, tuple[str, Callable[[Any], None]]] = {
    "spans that overlap": ("histogram_span_negative_offset", overlapping),
    "a negative count of a bucket": ("histogram_negative_bucket_count", lambda one: fill(one, deltas=(1, -2))),
    "a negative count": ("histogram_negative_count", negative_count),
    "negative zeros": ("histogram_negative_bucket_count", negative_zeros),
    "counts that do not sum": ("histogram_count_mismatch", lambda one: fill(one, count=7)),
    "counts above a count with a NaN sum": ("histogram_count_not_big_enough", nan_sum_and_few),
    "schema 53": ("histogram_invalid_schema", lambda one: fill(one, schema=53)),
    "schema -5": ("histogram_invalid_schema", lambda one: fill(one, schema=-5)),
    "schema -54": ("histogram_invalid_schema", lambda one: fill(one, schema=-54)),
    "spans without counts": ("histogram_spans_mismatch", lambda one: fill(one, length=3)),
    "10,000 buckets": (
        "histogram_too_many_buckets",
        lambda one: fill(one, count=10_000, length=10_000, deltas=(1, *[0] * 9_999)),
    ),
    "a claim of 65,537 buckets": ("histogram_too_many_buckets", lambda one: fill(one, length=65_537)),
    "a claim of four billion": ("histogram_span_out_of_range", lambda one: fill(one, length=2**32 - 1)),
    "indexes beyond 32 bits": ("histogram_span_out_of_range", lambda one: fill(one, offset=2**31 - 1)),
    "bounds that descend": ("histogram_custom_bounds_invalid", lambda one: of_bounds(one, 2.0, 1.0)),
    "a NaN bound": ("histogram_custom_bounds_nan", lambda one: of_bounds(one, 1.0, NAN)),
    "too few bounds": ("histogram_custom_bounds_few", lambda one: of_bounds(one)),
    "an unknown hint": ("histogram_unknown_hint", unknown_hint),
}


@BOTH
@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_histogram_is_refused_by_name_and_its_neighbours_are_stored(
    server: WriteServer, make: Make, case: str
) -> None:
    reason, spoil = REFUSED[case]
    name = f"r{list(REFUSED).index(case)}_{make.__name__}"
    message = make([({"__name__": f"{name}_good"}, [(NOW_MS, 1.0)]), ({"__name__": name}, [])])
    spoil(message.timeseries[1].histograms.add())
    before = refused(reason)
    answer = send(server, message)
    assert answer.status == 400, answer.text
    assert reason in answer.text
    assert refused(reason) - before == 1
    assert stored(server, name) == {}
    assert stored(server, f"{name}_good") == {NOW_MS: (1.0, None)}


@BOTH
def test_what_prometheus_keeps_is_kept(server: WriteServer, make: Make) -> None:
    name = f"kept_{make.__name__}"
    message = make([({"__name__": name}, [(NOW_MS - 5, 2.0)])])
    for step, threshold in enumerate((0.001, 0.002)):
        add_histogram(message, NOW_MS - step)
        message.timeseries[0].histograms[-1].zero_threshold = threshold
    add_histogram(message, NOW_MS - 3)
    message.timeseries[0].histograms[-1].sum = NAN
    message.timeseries[0].histograms[-1].count_int = 9
    add_histogram(message, NOW_MS - 4, stale=True)
    assert send(server, message).status == 204
    found = stored(server, name)
    assert sorted(found) == [NOW_MS - 5, NOW_MS - 4, NOW_MS - 3, NOW_MS - 1, NOW_MS]
    assert found[NOW_MS - 5] == (2.0, None)
    found_at = [histogram_of(server, name, NOW_MS - step) for step in (0, 1)]
    thresholds = [one.shapes[one.shape_of[0]].zero_threshold for one in found_at]
    assert thresholds == [0.001, 0.002]
    assert np.isnan(found[NOW_MS - 3][0])
    assert histogram_of(server, name, NOW_MS - 3).counts.tolist() == [9.0]
    stale = np.array([found[NOW_MS - 4][0], STALE])
    assert len(set(stale.view(np.int64).tolist())) == 1


def test_a_start_timestamp_after_its_sample_is_kept(server: WriteServer) -> None:
    message = request_2([({"__name__": "late_start"}, [(NOW_MS, 2.0)])])
    message.timeseries[0].samples[0].start_timestamp = NOW_MS + 5
    assert send(server, message).status == 204
    _, details = stored(server, "late_start")[NOW_MS]
    assert details is not None
    assert details.start_ms is not None
    assert details.start_ms.tolist() == [NOW_MS + 5]


@BOTH
@pytest.mark.parametrize(("schema", "first", "counts"), [(9, 1, [3.0, 7.0]), (10, 1, [10.0]), (52, 1, [10.0])])
def test_a_finer_schema_is_reduced_to_the_finest_that_is_stored(
    server: WriteServer, make: Make, schema: int, first: int, counts: list[float]
) -> None:
    name = f"fine_{schema}_{make.__name__}"
    message = make([({"__name__": name}, [])])
    fill(message.timeseries[0].histograms.add(), schema=schema, count=10, offset=1, length=4, deltas=(1, 1, 1, 1))
    assert send(server, message).status == 204
    found = histogram_of(server, name)
    (shape,) = found.shapes
    assert (shape.schema, shape.positive) == (8, ((first, len(counts)),))
    assert found.buckets.tolist() == counts


def test_claims_of_many_buckets_take_no_memory() -> None:
    message = request_2([({"__name__": "h"}, [])])
    for number in range(3_000):
        fill(message.timeseries[0].histograms.add(), offset=number, length=65_000, deltas=())
    body = message.SerializeToString()
    wire = decode_wire(body, 2, IngestLimits(), lambda _: None)
    reserved: list[int] = []
    tracemalloc.start()
    try:
        found = decode_histograms(body, wire.histograms, reserved.append)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.errors) == 3_000
    assert most < 32 << 20, f"{len(body)} bytes took {most}"


# OTLP.


def exponential(scale: int = 0, count: int = 3, offset: int = 0, counts: Any = (1, 2), **more: Any) -> pb.Metric:
    point = pb.ExponentialHistogramDataPoint(
        time_unix_nano=NOW_MS * 10**6,
        scale=scale,
        count=count,
        positive=pb.ExponentialHistogramDataPoint.Buckets(offset=offset, bucket_counts=counts),
        **more,
    )
    data = pb.ExponentialHistogram(data_points=[point], aggregation_temporality=pb.AGGREGATION_TEMPORALITY_CUMULATIVE)
    return pb.Metric(name="e", exponential_histogram=data)


BAD_POINTS = {
    "counts that do not sum": ("histogram_count_mismatch", exponential(count=9)),
    "counts above a count with a NaN sum": ("histogram_count_not_big_enough", exponential(count=2, sum=NAN)),
    "10,000 buckets": ("histogram_too_many_buckets", exponential(count=10_000, counts=[1] * 10_000)),
    "indexes beyond 32 bits": ("histogram_span_out_of_range", exponential(offset=2**31 - 2)),
    "a scale that is too coarse": ("histogram_scale", exponential(scale=-5)),
}


@pytest.mark.parametrize("case", BAD_POINTS)
def test_a_bad_point_is_refused_by_name_and_its_neighbours_are_stored(server: WriteServer, case: str) -> None:
    reason, metric = BAD_POINTS[case]
    metric.name = f"p{list(BAD_POINTS).index(case)}"
    good = gauge(number_point(2.0, NOW_MS), name=f"{metric.name}_good")
    before = refused(reason)
    status, partial = post_points(server, metric, good)
    assert (status, partial.rejected_data_points) == (200, 1), partial.error_message
    assert refused(reason) - before == 1
    assert stored(server, metric.name) == {}
    assert [value for value, _ in stored(server, f"{metric.name}_good").values()] == [2.0]


KEPT_POINTS = {
    "a NaN sum": exponential(count=5, sum=NAN),
    "a start after its sample": exponential(start_time_unix_nano=(NOW_MS + 5) * 10**6),
    "no recorded value": exponential(flags=1),
    "a scale that is finer": exponential(scale=20),
}


@pytest.mark.parametrize("case", KEPT_POINTS)
def test_points_that_prometheus_keeps_are_kept(server: WriteServer, case: str) -> None:
    metric = KEPT_POINTS[case]
    metric.name = f"k{list(KEPT_POINTS).index(case)}"
    status, partial = post_points(server, metric)
    assert (status, partial.error_message) == (200, "")
    histogram = histogram_of(server, metric.name)
    _, details = stored(server, metric.name)[NOW_MS]
    assert details is not None
    starts = None if details.start_ms is None else details.start_ms.tolist()
    assert starts == ([NOW_MS + 5] if case == "a start after its sample" else None)
    assert histogram.shapes[0].schema <= 8


def post_points(server: WriteServer, *found: pb.Metric) -> tuple[int, ExportMetricsPartialSuccess]:
    """(status, what the receiver says of refused points)."""
    body = export_request(*found).SerializeToString()
    with closing(http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)) as connection:
        connection.request("POST", PATHS[0], body, {"content-type": "application/x-protobuf"})
        answer = connection.getresponse()
        return answer.status, ExportMetricsServiceResponse.FromString(answer.read()).partial_success
