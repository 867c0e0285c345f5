"""Exponential histograms and start times of OTLP, kept, are those of plain Python over Google's messages."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.mapping.names import OtlpRules
from support.data.otlp_requests import attributes, export_request, gauge, number_point, samples_of
from tsdb.model.histograms import GAUGE, UNKNOWN, HistogramColumns
from tsdb.model.stale import STALE_BITS

CUMULATIVE, DELTA = pb.AGGREGATION_TEMPORALITY_CUMULATIVE, pb.AGGREGATION_TEMPORALITY_DELTA
KEEP = OtlpRules(native_histograms="keep")
MS = 1_000_000

counts = st.lists(st.sampled_from([0, 0, 0, 1, 2, 5, 2**40]), max_size=9)
buckets = st.builds(
    pb.ExponentialHistogramDataPoint.Buckets, offset=st.integers(-(2**31), 2**31 - 1) | st.integers(-9, 9),
    bucket_counts=counts,
)  # fmt: skip
points = st.builds(
    pb.ExponentialHistogramDataPoint,
    scale=st.sampled_from([-4, 0, 3, 8, 9, 12, 20, 90]),
    positive=buckets,
    negative=buckets,
    zero_count=st.sampled_from([0, 1, 7]),
    zero_threshold=st.sampled_from([0.0, 0.0, 0.5]),
    sum=st.sampled_from([0.0, -3.5, float("nan"), 1e300]),
    time_unix_nano=st.integers(1, 9).map(lambda ms: ms * MS),
    start_time_unix_nano=st.integers(0, 9).map(lambda ms: ms * MS),
    flags=st.sampled_from([0, 0, 0, 1]),
)


def plain_buckets(point: Any) -> tuple[int, dict[int, int], dict[int, int]]:
    """(schema, counts of positive buckets by Prometheus's index, those of negative ones), without empty buckets."""
    schema = min(point.scale, 8)
    found: list[dict[int, int]] = [{}, {}]
    for side, by_index in zip((point.positive, point.negative), found, strict=True):
        for i, count in enumerate(side.bucket_counts):
            index = (side.offset + i >> point.scale - schema) + 1
            by_index[index] = by_index.get(index, 0) + count
    return schema, *({index: count for index, count in side.items() if count} for side in found)


def kept_buckets(columns: HistogramColumns, at: int) -> tuple[int, dict[int, int], dict[int, int]]:
    """The same of one of the columns."""
    shape = columns.shapes[columns.shape_of[at]]
    numbers = columns.buckets[columns.starts[at] : columns.starts[at + 1]].tolist()
    pairs = [(index, int(count)) for index, count in zip(shape.indexes.tolist(), numbers, strict=True)]
    positive, negative = pairs[: shape.positive_buckets], pairs[shape.positive_buckets :]
    return (
        shape.schema,
        {index: count for index, count in positive if count},
        {index: count for index, count in negative if count},
    )


@given(st.lists(points, min_size=1, max_size=5), st.sampled_from([CUMULATIVE, DELTA]))
def test_histograms_are_kept_as_they_were_sent(drawn: list[Any], temporality: Any) -> None:
    for number, point in enumerate(drawn):
        point.count = sum(point.positive.bucket_counts) + sum(point.negative.bucket_counts) + point.zero_count
        point.attributes.extend(attributes({"n": number}))
    metric = pb.Metric(
        name="m", exponential_histogram=pb.ExponentialHistogram(data_points=drawn, aggregation_temporality=temporality)
    )
    export = OtlpDecoder(KEEP).decode(export_request(metric).SerializeToString())
    details = export.rows.details
    assert details is not None
    assert details.histograms is not None
    assert details.histogram_of is not None
    assert export.rows.samples == len(drawn)
    assert set(details.histograms.hints.tolist()) == {GAUGE if temporality == DELTA else UNKNOWN}
    for row, point in enumerate(drawn):
        at = int(details.histogram_of[row])
        columns, is_stale = details.histograms, bool(point.flags & 1)
        start_ms = 0 if details.start_ms is None else int(details.start_ms[row])
        assert (int(export.rows.ts_ms[row]), start_ms) == (point.time_unix_nano // MS, point.start_time_unix_nano // MS)
        bits = STALE_BITS if is_stale else int(np.float64(point.sum).view(np.int64))
        assert int(export.rows.values[row : row + 1].view(np.int64)[0]) == bits
        assert int(columns.sums[at : at + 1].view(np.int64)[0]) == bits
        schema, positive, negative = plain_buckets(point)
        if not is_stale and max((*positive, *negative), default=0) >= 2**31:
            assert export.rows.errors[row].reason == "histogram_span_out_of_range"
            continue
        assert row not in export.rows.errors
        if is_stale:
            assert kept_buckets(columns, at)[1:] == ({}, {})
            continue
        assert kept_buckets(columns, at) == (schema, positive, negative)
        shape = columns.shapes[columns.shape_of[at]]
        assert shape.zero_threshold == (point.zero_threshold or 1e-128)
        assert (columns.counts[at], columns.zero_counts[at]) == (float(point.count), float(point.zero_count))


def test_a_point_whose_counts_do_not_sum_is_refused_by_name() -> None:
    point = pb.ExponentialHistogramDataPoint(count=3, zero_count=1, time_unix_nano=MS)
    metric = pb.Metric(
        name="m", exponential_histogram=pb.ExponentialHistogram(data_points=[point], aggregation_temporality=CUMULATIVE)
    )
    (error,) = OtlpDecoder(KEEP).decode(export_request(metric).SerializeToString()).rows.errors.values()
    assert (error.reason, "metric 'm'" in error.message) == ("histogram_count_mismatch", True)


def test_start_times_belong_to_all_series_of_a_point_but_to_no_gauge() -> None:
    number = pb.NumberDataPoint(as_double=1.0, time_unix_nano=9 * MS, start_time_unix_nano=4 * MS + 5)
    classic = pb.HistogramDataPoint(
        count=1,
        sum=1.0,
        bucket_counts=[1, 0],
        explicit_bounds=[2.0],
        time_unix_nano=9 * MS,
        start_time_unix_nano=3 * MS,
    )
    level = number_point(2.0)
    level.start_time_unix_nano = MS
    request = export_request(
        gauge(level, name="level"),
        pb.Metric(name="c", sum=pb.Sum(data_points=[number], aggregation_temporality=CUMULATIVE, is_monotonic=True)),
        pb.Metric(name="h", histogram=pb.Histogram(data_points=[classic], aggregation_temporality=CUMULATIVE)),
        host="a",
    )
    request.resource_metrics[0].resource.attributes.extend(attributes({"service.name": "web"}))
    kept, dropped = (OtlpDecoder(rules).decode(request.SerializeToString()) for rules in (KEEP, OtlpRules()))
    assert kept.rows.details is not None
    assert kept.rows.details.start_ms is not None
    names = [labels["__name__"] for labels, _, _ in samples_of(kept)]
    shown = list(zip(names, kept.rows.details.start_ms.tolist(), strict=True))
    expected = [("level", 0), ("c_total", 4), ("h_sum", 3), ("h_count", 3), ("h_bucket", 3), ("h_bucket", 3)]
    assert shown == [*expected, ("target_info", 0)]
    assert (kept.start_times, dropped.start_times, dropped.rows.details) == (0, 3, None)
