"""The rules of the mapping, one row each: metrics of a request, and the series that they become."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.mapping.names import OtlpRules, TranslationStrategy
from support.data.column_cases import STALE_BITS
from support.data.otlp_requests import (
    attributes,
    export_request,
    gauge,
    number_point,
    refused_points,
    samples_of,
)

NS, CUMULATIVE, UNSPECIFIED = 10**9, pb.AGGREGATION_TEMPORALITY_CUMULATIVE, pb.AGGREGATION_TEMPORALITY_UNSPECIFIED


def series(request: Any, rules: OtlpRules | None = None) -> dict[str, float]:
    """Value by series, `name{label="value",...}` with labels in order."""
    export = OtlpDecoder(rules).decode(request.SerializeToString())
    found = {}
    for labels, _, bits in samples_of(export):
        name = labels.pop("__name__")
        inner = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        found[f"{name}{{{inner}}}"] = float(np.int64(bits).view(np.float64))
    assert len(found) == len(export.rows) - len(export.rows.errors)
    return found


def with_attributes(values: dict[str, Any]) -> pb.NumberDataPoint:
    point = number_point()
    point.attributes.extend(attributes(values))
    return point


def counter(*points: pb.NumberDataPoint, temporality: int = CUMULATIVE, monotonic: bool = True) -> pb.Metric:
    data = pb.Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=monotonic)  # type: ignore[arg-type]
    return pb.Metric(name="c", sum=data)


def histogram(temporality: int = CUMULATIVE, **fields: Any) -> pb.Metric:
    point = pb.HistogramDataPoint(time_unix_nano=NS, **fields)
    return pb.Metric(
        name="h",
        unit="s",
        histogram=pb.Histogram(data_points=[point], aggregation_temporality=temporality),  # type: ignore[arg-type]
    )


def exponential(temporality: int = CUMULATIVE, **fields: Any) -> pb.Metric:
    point = pb.ExponentialHistogramDataPoint(time_unix_nano=NS, **fields)
    data = pb.ExponentialHistogram(data_points=[point], aggregation_temporality=temporality)  # type: ignore[arg-type]
    return pb.Metric(name="e", exponential_histogram=data)


def buckets(offset: int, *counts: int) -> pb.ExponentialHistogramDataPoint.Buckets:
    return pb.ExponentialHistogramDataPoint.Buckets(offset=offset, bucket_counts=counts)


def summary(**fields: Any) -> pb.Metric:
    return pb.Metric(name="s", summary=pb.Summary(data_points=[pb.SummaryDataPoint(time_unix_nano=NS, **fields)]))


Quantile = pb.SummaryDataPoint.ValueAtQuantile

KINDS = {
    "gauge": (gauge(number_point(2.5)), {"m{}": 2.5}),
    "integer": (gauge(number_point(-7)), {"m{}": -7.0}),
    "integer beyond 2^53": (gauge(number_point(2**63 - 1)), {"m{}": 2.0**63}),
    "point without a value": (gauge(pb.NumberDataPoint(time_unix_nano=NS)), {"m{}": 0.0}),
    "infinity": (gauge(number_point(-math.inf)), {"m{}": -math.inf}),
    "ratio": (gauge(number_point(0.5), unit="1"), {"m_ratio{}": 0.5}),
    "counter": (counter(number_point(3)), {"c_total{}": 3.0}),
    "up-down counter": (counter(number_point(3), monotonic=False), {"c{}": 3.0}),
    "histogram": (
        histogram(count=6, sum=1.5, bucket_counts=[1, 2, 3], explicit_bounds=[0.1, 2.0]),
        {
            "h_seconds_sum{}": 1.5, "h_seconds_count{}": 6.0, "h_seconds_bucket{le=0.1}": 1.0,
            "h_seconds_bucket{le=2}": 3.0, "h_seconds_bucket{le=+Inf}": 6.0,
        },
    ),
    "histogram without sum and buckets": (
        histogram(count=6), {"h_seconds_count{}": 6.0, "h_seconds_bucket{le=+Inf}": 6.0},
    ),
    "histogram with an le attribute": (
        histogram(count=1, bucket_counts=[1, 0], explicit_bounds=[1.0], attributes=attributes({"le": "x", "a": "b"})),
        {
            "h_seconds_count{a=b,le=x}": 1.0, "h_seconds_bucket{a=b,le=1}": 1.0, "h_seconds_bucket{a=b,le=+Inf}": 1.0,
        },
    ),
    "boundaries without an exponent": (
        histogram(count=1, bucket_counts=[1, 0, 0], explicit_bounds=[1e-7, 1e21]),
        {
            "h_seconds_count{}": 1.0, "h_seconds_bucket{le=0.0000001}": 1.0,
            "h_seconds_bucket{le=1000000000000000000000}": 1.0, "h_seconds_bucket{le=+Inf}": 1.0,
        },
    ),
    "summary": (
        summary(count=2, sum=3.0, quantile_values=[Quantile(quantile=0.5, value=1.25), Quantile(quantile=1, value=2)]),
        {"s_sum{}": 3.0, "s_count{}": 2.0, "s{quantile=0.5}": 1.25, "s{quantile=1}": 2.0},
    ),
    "exponential histogram": (
        exponential(count=9, sum=4.0, scale=0, zero_count=1, positive=buckets(-1, 0, 2, 0, 3), negative=buckets(0, 3)),
        {
            "e_sum{}": 4.0, "e_count{}": 9.0, "e_bucket{le=-2}": 0.0, "e_bucket{le=-1}": 3.0, "e_bucket{le=0}": 4.0,
            "e_bucket{le=1}": 4.0, "e_bucket{le=2}": 6.0, "e_bucket{le=4}": 6.0, "e_bucket{le=8}": 9.0,
            "e_bucket{le=+Inf}": 9.0,
        },
    ),
    "exponential histogram, scale -1": (
        exponential(count=3, scale=-1, positive=buckets(0, 1, 2)),
        {
            "e_count{}": 3.0, "e_bucket{le=1}": 0.0, "e_bucket{le=4}": 1.0, "e_bucket{le=16}": 3.0,
            "e_bucket{le=+Inf}": 3.0,
        },
    ),
    "exponential histogram, scale 1": (
        exponential(count=3, scale=1, positive=buckets(1, 3)),
        {
            "e_count{}": 3.0, "e_bucket{le=1.4142135623730951}": 0.0, "e_bucket{le=2}": 3.0, "e_bucket{le=+Inf}": 3.0,
        },
    ),
    "exponential histogram, scale 9 reduced to 8": (
        exponential(count=3, scale=9, positive=buckets(510, 1, 1, 1)),
        {
            "e_count{}": 3.0, "e_bucket{le=1.9945921121709402}": 0.0, "e_bucket{le=2}": 2.0,
            "e_bucket{le=2.005422550100405}": 3.0,
            "e_bucket{le=+Inf}": 3.0,
        },
    ),
    "empty exponential histogram": (exponential(), {"e_count{}": 0.0, "e_bucket{le=+Inf}": 0.0}),
    "zero threshold": (
        exponential(count=1, zero_count=1, zero_threshold=0.25),
        {"e_count{}": 1.0, "e_bucket{le=0.25}": 1.0, "e_bucket{le=+Inf}": 1.0},
    ),
    "metric without points": (gauge(), {}),
    "metric without data": (pb.Metric(name="x"), {}),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_a_metric_of_each_kind_becomes_its_series(kind: str) -> None:
    metric, expected = KINDS[kind]
    assert series(export_request(metric)) == expected


LABELS: dict[str, tuple[dict[str, Any], str]] = {
    "text, integer, boolean": ({"a": "x", "b": -5, "c": True, "d": False}, "a=x,b=-5,c=true,d=false"),
    "smallest integer": ({"a": -(2**63)}, f"a={-(2**63)}"),
    "double": ({"a": 1.0, "b": 0.1, "c": 1e21}, "a=1,b=0.1,c=1e+21"),
    "bytes": ({"a": b"\x00\xff"}, "a=AP8="),
    "array": ({"a": [1, "x<", 2.5, None, [True]]}, 'a=[1,"x\\u003c",2.5,null,[true]]'),
    "map": ({"a": {"b": 1, "a": {"z": "é"}}}, 'a={"a":{"z":"é"},"b":1}'),
    "array with an infinity": ({"a": [math.inf], "b": "x"}, "b=x"),
    "no value, empty text": ({"a": None, "b": "", "c": "x"}, "c=x"),
    "names with other characters": ({"http.method": "GET", "1st": "x", "_y": "z"}, "http_method=GET,key_1st=x,key_y=z"),
    "names that become one": ({"a_b": "2", "a.b": "1", "a-b": "0"}, "a_b=0;1;2"),
    "empty values of names that become one": ({"a-b": "", "a.b": "x", "a_b": ""}, "a_b=x;"),
    "another name": ({"__name__": "x"}, ""),
}


@pytest.mark.parametrize("case", LABELS)
def test_attributes_of_each_kind_become_labels(case: str) -> None:
    values, expected = LABELS[case]
    assert series(export_request(gauge(with_attributes(values)))) == {f"m{{{expected}}}": 1.0}


SERVICE = {"service__name": "api", "service__namespace": "shop", "service__instance__id": "i1"}
RESOURCES: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "service": ({"service__name": "api"}, {}, ["m{job=api}"]),
    "namespace and instance": (SERVICE, {}, ["m{instance=i1,job=shop/api}"]),
    "namespace alone": ({"service__namespace": "shop"}, {}, ["m{}"]),
    "other attributes": (
        {**SERVICE, "host__name": "h", "os": 5}, {},
        ["m{instance=i1,job=shop/api}", "target_info{host_name=h,instance=i1,job=shop/api,os=5}"],
    ),
    "other attributes without a service": ({"host__name": "h"}, {}, ["m{}"]),
    "promoted": (
        {**SERVICE, "host__name": "h"}, {"promote_resource_attributes": frozenset({"host.name"})},
        ["m{host_name=h,instance=i1,job=shop/api}", "target_info{host_name=h,instance=i1,job=shop/api}"],
    ),
    "all promoted but": (
        {"service__name": "api", "a": "1", "b": "2"},
        {"promote_all_resource_attributes": True, "ignore_resource_attributes": frozenset({"b"})},
        ["m{a=1,job=api,service_name=api}", "target_info{a=1,b=2,job=api}"],
    ),
    "identifying kept": (
        {"service__name": "api", "a": "1"}, {"keep_identifying_resource_attributes": True},
        ["m{job=api}", "target_info{a=1,job=api,service_name=api}"],
    ),
    "without translation": (
        {"service__name": "api", "host__name": "h"}, {"translation_strategy": TranslationStrategy.NO_TRANSLATION},
        ["m{job=api}", "target_info{host.name=h,job=api}"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", RESOURCES)
def test_a_resource_gives_job_instance_and_target_info(case: str) -> None:
    resource, rules, expected = RESOURCES[case]
    request = export_request(gauge(number_point()), **resource)
    assert list(series(request, OtlpRules(**rules))) == expected


def test_a_label_of_the_resource_replaces_the_attribute_and_a_promoted_one_does_not() -> None:
    rules = OtlpRules(promote_resource_attributes=frozenset({"zone"}))
    request = export_request(gauge(number_point(job="x", zone="y")), service__name="api", zone="z")
    assert next(iter(series(request, rules))) == "m{job=api,zone=y}"


def test_target_info_has_the_newest_timestamp_of_the_accepted_points_and_repeats_nothing() -> None:
    points = [number_point(ts_ms=2000), number_point(ts_ms=3000, a="1"), number_point(ts_ms=1000, a="2")]
    late = counter(number_point(ts_ms=9000), temporality=UNSPECIFIED)
    request = export_request(gauge(*points), late, service__name="api", os="linux")
    request.resource_metrics.extend(list(request.resource_metrics))
    samples = samples_of(OtlpDecoder().decode(request.SerializeToString()))
    assert [ts_ms for labels, ts_ms, _ in samples if labels["__name__"] == "target_info"] == [3000]


def test_scope_labels_are_off_by_default() -> None:
    request = export_request(gauge(number_point()))
    scope = request.resource_metrics[0].scope_metrics[0]
    scope.scope.name, scope.schema_url = "lib", "https://schema"
    scope.scope.attributes.extend(attributes({"k.x": 1}))
    assert list(series(request)) == ["m{}"]
    promoted = series(request, OtlpRules(promote_scope_metadata=True))
    assert list(promoted) == ["m{otel_scope_k_x=1,otel_scope_name=lib,otel_scope_schema_url=https://schema}"]


def test_points_without_a_recorded_value_are_stale_markers() -> None:
    request = export_request(
        gauge(number_point(5.0, flags=1)),
        histogram(count=1, sum=1.0, bucket_counts=[1, 0], explicit_bounds=[1.0], flags=1),
        exponential(count=1, positive=buckets(0, 1), flags=1),
        summary(count=1, quantile_values=[Quantile(quantile=0.5)], flags=1),
    )
    samples = samples_of(OtlpDecoder().decode(request.SerializeToString()))
    assert len(samples) == 1 + 4 + 4 + 3
    assert {bits for _, _, bits in samples} == {STALE_BITS}


def test_doubles_are_kept_bit_for_bit() -> None:
    payload = np.array([0x7FF8_0000_0000_BEEF, -0x8000_0000_0000_0000], np.int64).view(np.float64).tolist()
    wire = export_request(gauge(*(number_point(value) for value in payload))).SerializeToString()
    samples = samples_of(OtlpDecoder().decode(wire))
    assert [bits for _, _, bits in samples] == [0x7FF8_0000_0000_BEEF, -0x8000_0000_0000_0000]


@pytest.mark.parametrize(("ns", "ts_ms"), [(0, 0), (999_999, 0), (1_999_999, 1), (2**64 - 1, (2**64 - 1) // 10**6)])
def test_nanoseconds_become_whole_milliseconds(ns: int, ts_ms: int) -> None:
    request = export_request(gauge(pb.NumberDataPoint(time_unix_nano=ns)))
    assert OtlpDecoder().decode(request.SerializeToString()).rows.ts_ms.tolist() == [ts_ms]


REFUSED = {
    "no name": (gauge(number_point(), name=""), "labels_malformed", "no letter or digit"),
    "scale": (exponential(scale=-5), "histogram_scale", "scale -5; -4 is the smallest"),
    "key": (gauge(with_attributes({"..": "x"})), "labels_malformed", "key without letter"),
    "attributes": (gauge(with_attributes({f"k{i}": 1 for i in range(129)})), "labels_too_many", "129 attributes"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_point_has_its_reason_and_the_others_are_stored(case: str) -> None:
    metric, reason, text = REFUSED[case]
    export = OtlpDecoder().decode(export_request(gauge(number_point(7.0), name="good"), metric).SerializeToString())
    assert [labels["__name__"] for labels, _, _ in samples_of(export)] == ["good"]
    assert refused_points(export) == 1
    (error,) = export.rows.errors.values()
    assert error.reason == reason
    assert text in error.message


def test_exponential_histograms_are_refused_by_setting() -> None:
    export = OtlpDecoder(OtlpRules(native_histograms="refuse")).decode(
        export_request(exponential()).SerializeToString()
    )
    assert [error.reason for error in export.rows.errors.values()] == ["native_histogram"]


def test_a_resource_with_too_many_attributes_refuses_its_points() -> None:
    many = {f"k{i}": 1 for i in range(129)}
    export = OtlpDecoder().decode(export_request(gauge(number_point()), **many).SerializeToString())
    assert [error.reason for error in export.rows.errors.values()] == ["labels_too_many"]


def test_families_have_type_help_and_unit() -> None:
    found = [
        counter(number_point()), counter(number_point(), monotonic=False), gauge(number_point(), unit="By/s"),
        histogram(count=1), exponential(), summary(), counter(number_point(), temporality=UNSPECIFIED),
        gauge(name="empty"),
    ]  # fmt: skip
    found[0].description = "how many"
    families = OtlpDecoder().decode(export_request(*found).SerializeToString()).metadata
    assert [(family.name, family.kind, family.help, family.unit) for family in families] == [
        ("c_total", "counter", "how many", ""),
        ("c", "gauge", "", ""),
        ("m_bytes_per_second", "gauge", "", "bytes_per_second"),
        ("h_seconds", "histogram", "", "seconds"),
        ("e", "histogram", "", ""),
        ("s", "summary", "", ""),
    ]


def test_start_times_are_counted() -> None:
    point = number_point()
    point.start_time_unix_nano = 5
    export = OtlpDecoder().decode(export_request(gauge(point, number_point())).SerializeToString())
    assert (export.start_times, export.points) == (1, 2)
