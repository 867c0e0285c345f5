"""Generated ExportMetricsServiceRequests, and decoded ones as plain lists."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.common.v1 import common_pb2 as common
from opentelemetry.proto.metrics.v1 import metrics_pb2 as metrics
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from ingest.otlp.decode import Export

U64, I64 = st.integers(0, 2**64 - 1), st.integers(-(2**63), 2**63 - 1)
NAMED = (
    "", "a", "a.b", "a_b", "a-b", "_x", "__y", "..", "9", "é.ü", "le", "quantile", "job", "instance", "__name__", "A1",
)  # fmt: skip
KEYS = st.one_of(st.sampled_from(NAMED[1:]), st.sampled_from(NAMED), st.text(max_size=5))
FLOATS = st.one_of(
    st.floats(), st.sampled_from([0.0, -0.0, 1.0, 0.1, 1e21, 1e-7, 5e-324, 1.7976931348623157e308, 123456789.125])
)
COUNTS = st.one_of(st.integers(0, 20), U64)
TIMES = st.one_of(st.integers(0, 10**10).map(lambda ms: ms * 10**6 + 999), U64)


@st.composite
def any_values(draw: st.DrawFn, depth: int = 2) -> common.AnyValue:
    kinds = ["", "string", "bool", "int", "double", "bytes", *(["array", "kvlist"] if depth else [])]
    match draw(st.sampled_from(kinds)):
        case "string":
            return common.AnyValue(string_value=draw(st.one_of(st.just("v"), st.text(max_size=6))))
        case "bool":
            return common.AnyValue(bool_value=draw(st.booleans()))
        case "int":
            return common.AnyValue(int_value=draw(I64))
        case "double":
            return common.AnyValue(double_value=draw(FLOATS))
        case "bytes":
            return common.AnyValue(bytes_value=draw(st.binary(max_size=5)))
        case "array":
            values = draw(st.lists(any_values(depth - 1), max_size=3))
            return common.AnyValue(array_value=common.ArrayValue(values=values))
        case "kvlist":
            pairs = draw(st.lists(key_values(depth - 1), max_size=3))
            return common.AnyValue(kvlist_value=common.KeyValueList(values=pairs))
    return common.AnyValue()


@st.composite
def key_values(draw: st.DrawFn, depth: int = 2) -> common.KeyValue:
    return common.KeyValue(key=draw(KEYS), value=draw(any_values(depth)))


ATTRIBUTES = st.lists(key_values(), max_size=5)
FLAGS = st.sampled_from([0, 0, 0, 1])
EXEMPLARS = st.lists(st.builds(metrics.Exemplar, as_double=FLOATS), max_size=1)
SUMS = st.one_of(st.none(), FLOATS)
_TIMES: dict[str, Any] = {"time_unix_nano": TIMES, "start_time_unix_nano": st.sampled_from([0, 5])}
_COMMON: dict[str, Any] = {**_TIMES, "attributes": ATTRIBUTES, "flags": FLAGS}
NUMBER_POINTS = st.one_of(
    st.builds(metrics.NumberDataPoint, as_double=FLOATS, exemplars=EXEMPLARS, **_COMMON),
    st.builds(metrics.NumberDataPoint, as_int=I64, **_COMMON),
    st.builds(metrics.NumberDataPoint, **_COMMON),
)
HISTOGRAM_POINTS = st.builds(
    metrics.HistogramDataPoint,
    count=COUNTS,
    sum=SUMS,
    bucket_counts=st.lists(COUNTS, max_size=4),
    explicit_bounds=st.lists(FLOATS, max_size=4),
    exemplars=EXEMPLARS,
    **_COMMON,
)
BUCKETS = st.builds(
    metrics.ExponentialHistogramDataPoint.Buckets,
    offset=st.one_of(st.integers(-20, 20), st.integers(-(2**31), 2**31 - 1)),
    bucket_counts=st.lists(st.one_of(st.integers(0, 2), COUNTS), max_size=6),
)
EXPONENTIAL_POINTS = st.builds(
    metrics.ExponentialHistogramDataPoint,
    count=COUNTS,
    sum=SUMS,
    scale=st.one_of(st.integers(-6, 21), st.integers(-(2**31), 2**31 - 1)),
    zero_count=st.integers(0, 2),
    zero_threshold=st.sampled_from([0.0, 1e-6]),
    positive=BUCKETS,
    negative=BUCKETS,
    exemplars=EXEMPLARS,
    **_COMMON,
)
SUMMARY_POINTS = st.builds(
    metrics.SummaryDataPoint,
    count=COUNTS,
    sum=FLOATS,
    quantile_values=st.lists(
        st.builds(metrics.SummaryDataPoint.ValueAtQuantile, quantile=FLOATS, value=FLOATS), max_size=3
    ),
    **_COMMON,
)
TEMPORALITY = st.sampled_from([2, 2, 2, 1, 0])


def _data(points: st.SearchStrategy[Any]) -> dict[str, Any]:
    return {"data_points": st.lists(points, max_size=3)}


_METRIC: dict[str, Any] = {
    "name": st.sampled_from(["m", "http.req", "..", "", "9.a", "é", "total.x"]),
    "description": st.just("help"),
    "unit": st.sampled_from(["", "1", "s", "By", "{request}", "m/s"]),
}
METRICS = st.one_of(
    st.builds(metrics.Metric, gauge=st.builds(metrics.Gauge, **_data(NUMBER_POINTS)), **_METRIC),
    st.builds(
        metrics.Metric,
        sum=st.builds(
            metrics.Sum, aggregation_temporality=TEMPORALITY, is_monotonic=st.booleans(), **_data(NUMBER_POINTS)
        ),
        **_METRIC,
    ),
    st.builds(
        metrics.Metric,
        histogram=st.builds(metrics.Histogram, aggregation_temporality=TEMPORALITY, **_data(HISTOGRAM_POINTS)),
        **_METRIC,
    ),
    st.builds(
        metrics.Metric,
        exponential_histogram=st.builds(
            metrics.ExponentialHistogram, aggregation_temporality=TEMPORALITY, **_data(EXPONENTIAL_POINTS)
        ),
        **_METRIC,
    ),
    st.builds(metrics.Metric, summary=st.builds(metrics.Summary, **_data(SUMMARY_POINTS)), **_METRIC),
)
SCOPES = st.builds(
    metrics.ScopeMetrics,
    scope=st.builds(
        common.InstrumentationScope,
        name=st.sampled_from(["", "lib"]),
        version=st.sampled_from(["", "1"]),
        attributes=st.lists(key_values(), max_size=2),
    ),
    schema_url=st.sampled_from(["", "u"]),
    metrics=st.lists(METRICS, max_size=3),
)
RESOURCE_KEYS = ("service.name", "service.namespace", "service.instance.id", "host.name", "host_name")
RESOURCES = st.builds(
    Resource,
    attributes=st.lists(
        st.builds(common.KeyValue, key=st.one_of(st.sampled_from(RESOURCE_KEYS), KEYS), value=any_values()), max_size=5
    ),
)
REQUESTS = st.builds(
    ExportMetricsServiceRequest,
    resource_metrics=st.lists(
        st.builds(metrics.ResourceMetrics, resource=RESOURCES, scope_metrics=st.lists(SCOPES, max_size=2)), max_size=2
    ),
)


def samples_of(export: Export) -> list[tuple[dict[str, str], int, int]]:
    """(labels, ts_ms, bits of the value) of each row without an error."""
    rows = export.rows
    bits = rows.values.view(np.int64)
    found = []
    for row in range(len(rows)):
        raw = rows.labels[rows.label_starts[row] : rows.label_starts[row + 1]].tobytes()
        if row in rows.errors:
            assert raw == b""
            continue
        parts = raw.split(b"\xff")
        names = parts[::2]
        assert len(set(names)) == len(names) == len(parts) / 2, raw
        labels = {name.decode(): value.decode() for name, value in zip(names, parts[1::2], strict=True)}
        found.append((labels, int(rows.ts_ms[row]), int(bits[row])))
    return found


def refused_points(export: Export) -> int:
    """Data points with an error."""
    points = {int(export.row_points[row]) for row in export.rows.errors}
    return len(points - {-1})


def any_value(value: Any) -> common.AnyValue:
    """An AnyValue of a Python value: None, text, number, bytes, list or dict."""
    match value:
        case None:
            return common.AnyValue()
        case bool():
            return common.AnyValue(bool_value=value)
        case int():
            return common.AnyValue(int_value=value)
        case float():
            return common.AnyValue(double_value=value)
        case str():
            return common.AnyValue(string_value=value)
        case bytes():
            return common.AnyValue(bytes_value=value)
        case list():
            return common.AnyValue(array_value=common.ArrayValue(values=map(any_value, value)))
    return common.AnyValue(kvlist_value=common.KeyValueList(values=attributes(value)))


def attributes(values: dict[str, Any]) -> list[common.KeyValue]:
    return [common.KeyValue(key=key, value=any_value(value)) for key, value in values.items()]


def number_point(value: float = 1.0, ts_ms: int = 1000, flags: int = 0, **labels: Any) -> metrics.NumberDataPoint:
    number: dict[str, Any] = {"as_int": value} if isinstance(value, int) else {"as_double": value}
    return metrics.NumberDataPoint(time_unix_nano=ts_ms * 10**6, flags=flags, attributes=attributes(labels), **number)


def gauge(*points: metrics.NumberDataPoint, name: str = "m", unit: str = "") -> metrics.Metric:
    return metrics.Metric(name=name, unit=unit, gauge=metrics.Gauge(data_points=points))


def export_request(*found: metrics.Metric, **resource: Any) -> ExportMetricsServiceRequest:
    """A request of one resource and scope. `resource`: its attributes, with `__` in place of a dot."""
    named = {key.replace("__", "."): value for key, value in resource.items()}
    scope = metrics.ScopeMetrics(metrics=found)
    return ExportMetricsServiceRequest(
        resource_metrics=[
            metrics.ResourceMetrics(resource=Resource(attributes=attributes(named)), scope_metrics=[scope])
        ]
    )
