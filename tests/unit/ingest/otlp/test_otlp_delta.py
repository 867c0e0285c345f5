"""Points of delta temporality become samples as they came: value and start timestamp of each interval."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.mapping.names import OtlpRules
from support.data.column_cases import STALE_BITS
from support.data.otlp_requests import export_request, gauge, number_point, refused_points, samples_of
from tsdb.model.histograms import GAUGE, UNKNOWN

NS_PER_MS = 1_000_000
KEEP = OtlpRules(native_histograms="keep")
REFUSES = OtlpRules(delta="refuse")
DELTA: Any = pb.AGGREGATION_TEMPORALITY_DELTA
CUMULATIVE: Any = pb.AGGREGATION_TEMPORALITY_CUMULATIVE


def times(start_ms: int, end_ms: int) -> dict[str, Any]:
    return {"start_time_unix_nano": start_ms * NS_PER_MS, "time_unix_nano": end_ms * NS_PER_MS}


def total(*values: float, monotonic: bool = True, temporality: Any = DELTA) -> pb.Metric:
    """A sum; the first interval is (0, 1000] ms, and each begins where the one before it ends."""
    points = [
        pb.NumberDataPoint(as_double=value, **times(1000 * number, 1000 * number + 1000))
        for number, value in enumerate(values)
    ]
    data = pb.Sum(data_points=points, aggregation_temporality=temporality, is_monotonic=monotonic)
    return pb.Metric(name="c", sum=data)


def histogram(temporality: Any = DELTA, flags: int = 0) -> pb.Metric:
    point = pb.HistogramDataPoint(
        count=6, sum=1.5, bucket_counts=[1, 2, 3], explicit_bounds=[0.5, 2.0], flags=flags, **times(1000, 2000)
    )
    return pb.Metric(name="h", histogram=pb.Histogram(data_points=[point], aggregation_temporality=temporality))


def exponential(temporality: Any = DELTA, flags: int = 0) -> pb.Metric:
    positive = pb.ExponentialHistogramDataPoint.Buckets(offset=-1, bucket_counts=[2, 0, 3])
    point = pb.ExponentialHistogramDataPoint(
        count=6, sum=4.5, zero_count=1, positive=positive, flags=flags, **times(1000, 2000)
    )
    data = pb.ExponentialHistogram(data_points=[point], aggregation_temporality=temporality)
    return pb.Metric(name="e", exponential_histogram=data)


def shown(metric: pb.Metric, rules: OtlpRules | None = None) -> list[tuple[str, int, float]]:
    """(series, ts_ms, value) of each sample."""
    export = OtlpDecoder(rules).decode(export_request(metric).SerializeToString())
    assert not export.rows.errors
    return [
        (labels["__name__"] + labels.get("le", ""), ts_ms, float(np.int64(bits).view(np.float64)))
        for labels, ts_ms, bits in samples_of(export)
    ]


@pytest.mark.parametrize(("monotonic", "name"), [(True, "c_total"), (False, "c")])
def test_each_interval_of_a_sum_is_a_sample(monotonic: bool, name: str) -> None:
    expected = [(name, 1000, 2.0), (name, 2000, 0.0), (name, 3000, 5.5)]
    assert shown(total(2.0, 0.0, 5.5, monotonic=monotonic)) == expected


def test_an_interval_of_a_histogram_has_its_own_counts_in_buckets_that_add_up() -> None:
    expected = {"h_sum": 1.5, "h_count": 6.0, "h_bucket0.5": 1.0, "h_bucket2": 3.0, "h_bucket+Inf": 6.0}
    assert shown(histogram()) == [(name, 2000, value) for name, value in expected.items()]


@pytest.mark.parametrize(("temporality", "hint"), [(DELTA, GAUGE), (CUMULATIVE, UNKNOWN)])
def test_an_interval_of_an_exponential_histogram_is_a_gauge_histogram(temporality: Any, hint: int) -> None:
    details = OtlpDecoder(KEEP).decode(export_request(exponential(temporality)).SerializeToString()).rows.details
    assert details is not None
    assert details.histograms is not None
    assert details.histograms.hints.tolist() == [hint]
    assert details.histograms.is_integer.tolist() == [True]
    assert details.histograms.buckets.tolist() == [2.0, 0.0, 3.0]


@pytest.mark.parametrize("metric", [histogram(flags=1), exponential(flags=1)], ids=["explicit", "exponential"])
def test_an_interval_without_a_recorded_value_is_a_stale_marker(metric: pb.Metric) -> None:
    export = OtlpDecoder(KEEP).decode(export_request(metric).SerializeToString())
    assert {bits for _, _, bits in samples_of(export)} == {STALE_BITS}


@pytest.mark.parametrize(
    ("starts_ms", "kept"),
    [
        pytest.param([1000, 2000], [1000, 2000], id="intervals that touch"),
        pytest.param([1500, 1200], [1500, 1200], id="intervals that overlap"),
        pytest.param([9000, 3000], [9000, 3000], id="a start at the end and after it"),
        pytest.param([0, 2000], [0, 2000], id="a missing start"),
        pytest.param([0, 0], None, id="no start at all"),
    ],
)
def test_start_timestamps_stay_as_they_came(starts_ms: list[int], kept: list[int] | None) -> None:
    metric = total(1.0, 2.0)
    for point, start_ms, end_ms in zip(metric.sum.data_points, starts_ms, (2000, 3000), strict=True):
        point.start_time_unix_nano, point.time_unix_nano = start_ms * NS_PER_MS, end_ms * NS_PER_MS
    export = OtlpDecoder(KEEP).decode(export_request(metric).SerializeToString())
    assert not export.rows.errors
    assert [(ts_ms, value) for _, ts_ms, value in shown(metric, KEEP)] == [(2000, 1.0), (3000, 2.0)]
    found = None if export.rows.details is None else export.rows.details.start_ms
    assert (None if found is None else found.tolist()) == kept


def test_metadata_has_the_type_unknown_for_deltas_alone() -> None:
    metrics = [total(1.0), total(1.0, monotonic=False), histogram(), exponential(), gauge(number_point())]
    metrics += [total(1.0, temporality=CUMULATIVE), histogram(CUMULATIVE)]
    families = OtlpDecoder(KEEP).decode(export_request(*metrics).SerializeToString()).metadata
    assert [(family.name, family.kind) for family in families] == [
        ("c_total", "unknown"), ("c", "unknown"), ("h", "unknown"), ("e", "unknown"), ("m", "gauge"),
        ("c_total", "counter"), ("h", "histogram"),
    ]  # fmt: skip


KEEP_REFUSES = OtlpRules(native_histograms="keep", delta="refuse")
NO_NATIVE, CLASSIC = OtlpRules(native_histograms="refuse"), OtlpRules(native_histograms="classic")
BY_SETTING = "otlp_delta = refuse does not accept: set the sender to cumulative"
REFUSED: dict[str, tuple[pb.Metric, OtlpRules, str, str]] = {
    "sum": (total(1.0), REFUSES, "delta_temporality", f"'c' has delta temporality, which {BY_SETTING}"),
    "histogram": (histogram(), REFUSES, "delta_temporality", f"'h' has delta temporality, which {BY_SETTING}"),
    "exponential": (exponential(), KEEP_REFUSES, "delta_temporality", f"'e' has delta temporality, which {BY_SETTING}"),
    "exponential that would be classic": (
        exponential(), CLASSIC, "delta_temporality", "do not add up: set native_histograms = keep, or the sender",
    ),
    "exponential, refused by setting": (exponential(), NO_NATIVE, "native_histogram", "native_histograms = refuse"),
    "unspecified": (
        total(1.0, temporality=pb.AGGREGATION_TEMPORALITY_UNSPECIFIED), OtlpRules(), "unspecified_temporality",
        "is a sum with temporality 0; delta (1) and cumulative (2) are accepted",
    ),
    "unknown": (
        histogram(7), OtlpRules(), "unspecified_temporality",
        "is a histogram with temporality 7; delta (1) and cumulative (2) are accepted",
    ),
    "unspecified, deltas refused": (
        total(1.0, temporality=0), REFUSES, "unspecified_temporality", "temporality 0; cumulative (2) is accepted",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_metric_has_its_reason_and_the_others_are_stored(case: str) -> None:
    metric, rules, reason, text = REFUSED[case]
    request = export_request(gauge(number_point(7.0), name="good"), metric)
    export = OtlpDecoder(rules).decode(request.SerializeToString())
    assert [labels["__name__"] for labels, _, _ in samples_of(export)] == ["good"]
    assert [family.name for family in export.metadata] == ["good"]
    assert refused_points(export) == 1
    (error,) = export.rows.errors.values()
    assert error.reason == reason
    assert text in error.message
