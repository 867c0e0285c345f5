"""Exemplars of OTLP: their series, times, values and labels, from protobuf and JSON."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from ingest.otlp.decode import OtlpDecoder, OtlpLimits
from ingest.otlp.wire.json_request import json_to_wire
from ingest.otlp.wire.tables import TableLimits
from support.counters import sample
from support.data.otlp_requests import attributes, export_request
from tsdb.model.errors import InvalidRequest
from tsdb.model.labels import parse_labels

NS, CUMULATIVE = 10**9, pb.AGGREGATION_TEMPORALITY_CUMULATIVE
TRACE, SPAN = bytes.fromhex("4bf92f3577b34da6a3ce929d0e0e4736"), bytes.fromhex("00f067aa0ba902b7")
IDS = {"trace_id": TRACE.hex(), "span_id": SPAN.hex()}
Found = tuple[str, int, float, dict[str, str]]


def exemplar(value: float = 0.0, ts_ms: int = 5, **fields: Any) -> pb.Exemplar:
    given: dict[str, Any] = {"trace_id": TRACE, "span_id": SPAN, "as_double": value} | fields
    return pb.Exemplar(time_unix_nano=ts_ms * 1_000_000 + 999_999, **given)


def found(data: bytes, decoder: OtlpDecoder | None = None) -> list[Found]:
    """Series, with the label that tells it from its neighbours, time, value and labels of each exemplar."""
    rows = (decoder or OtlpDecoder()).decode(data).rows
    if rows.exemplars is None:
        return []
    exemplars = []
    for index, row in enumerate(rows.exemplars.row.tolist()):
        labels = dict(parse_labels(rows.labels_of(row)))
        start, end = rows.exemplars.label_starts[index : index + 2].tolist()
        exemplars.append(
            (
                labels["__name__"] + labels.get("le", ""),
                int(rows.exemplars.ts_ms[index]),
                float(rows.exemplars.values[index]),
                dict(parse_labels(rows.exemplars.labels[start:end].tobytes())),
            )
        )
    return exemplars


def number(kind: str, *exemplars: pb.Exemplar) -> bytes:
    point = pb.NumberDataPoint(time_unix_nano=NS, as_double=1.0, exemplars=exemplars)
    if kind == "gauge":
        return export_request(pb.Metric(name="m", gauge=pb.Gauge(data_points=[point]))).SerializeToString()
    total = pb.Sum(data_points=[point], aggregation_temporality=CUMULATIVE, is_monotonic=True)
    return export_request(pb.Metric(name="m", sum=total)).SerializeToString()


def histogram(*exemplars: pb.Exemplar, **fields: Any) -> bytes:
    point = pb.HistogramDataPoint(
        time_unix_nano=NS, count=3, explicit_bounds=[1.0, 2.5], bucket_counts=[1, 1, 1], exemplars=exemplars, **fields
    )
    data = pb.Histogram(data_points=[point], aggregation_temporality=CUMULATIVE)
    return export_request(pb.Metric(name="h", histogram=data)).SerializeToString()


def test_exemplars_of_numbers_belong_to_their_series() -> None:
    assert found(number("sum", exemplar(0.25), exemplar(as_int=-7))) == [
        ("m_total", 5, 0.25, IDS),
        ("m_total", 5, -7.0, IDS),
    ]


@pytest.mark.parametrize("fields", [{}, {"sum": 4.0}])
def test_exemplars_of_a_histogram_belong_to_the_bucket_with_their_value(fields: dict[str, float]) -> None:
    values = [0.5, 1.0, 1.5, 2.5, 9.0, float("inf"), float("-inf"), float("nan")]
    names = [name for name, *_ in found(histogram(*map(exemplar, values), **fields))]
    assert [name.removeprefix("h_bucket") for name in names] == ["1", "1", "2.5", "2.5", "+Inf", "+Inf", "1", "+Inf"]


def test_exemplars_of_an_exponential_histogram_belong_to_its_classic_buckets() -> None:
    point = pb.ExponentialHistogramDataPoint(
        time_unix_nano=NS, count=2, scale=0, positive=pb.ExponentialHistogramDataPoint.Buckets(bucket_counts=[1, 1]),
        exemplars=[exemplar(1.5), exemplar(3.0), exemplar(100.0)],
    )  # fmt: skip
    data = pb.ExponentialHistogram(data_points=[point], aggregation_temporality=CUMULATIVE)
    request = export_request(pb.Metric(name="e", exponential_histogram=data)).SerializeToString()
    assert [name for name, *_ in found(request)] == ["e_bucket2", "e_bucket4", "e_bucket+Inf"]


def test_labels_are_the_ids_in_hex_and_the_filtered_attributes() -> None:
    filtered = attributes({"user": "me", "n": 3, "ok": True})
    [(*_, labels)] = found(number("sum", exemplar(filtered_attributes=filtered)))
    assert labels == IDS | {"user": "me", "n": "3", "ok": "true"}
    [(*_, none)] = found(number("sum", exemplar(trace_id=bytes(16), span_id=b"")))
    assert none == {}


def test_filtered_attributes_that_would_be_too_long_are_left_out() -> None:
    taken = sum(map(len, IDS)) + sum(map(len, IDS.values()))
    for size, expected in ((128 - taken - 1, IDS | {"a": "x" * (127 - taken)}), (128 - taken, IDS)):
        [(*_, labels)] = found(number("sum", exemplar(filtered_attributes=attributes({"a": "x" * size}))))
        assert labels == expected


def test_exemplars_over_the_limit_are_dropped_and_counted() -> None:
    before = sample("tsdb_ingest_exemplars_dropped_total", reason="too_many")
    decoder = OtlpDecoder(limits=OtlpLimits(TableLimits(exemplars_max=2)))
    data = number("sum", *(exemplar(float(n)) for n in range(5)))
    assert [value for _, _, value, _ in found(data, decoder)] == [0.0, 1.0]
    assert sample("tsdb_ingest_exemplars_dropped_total", reason="too_many") - before == 3


def test_an_exemplar_that_is_no_message_is_refused_with_the_byte() -> None:
    data = number("sum", exemplar(1.0))
    at = data.index(TRACE) - 1
    with pytest.raises(InvalidRequest, match="at byte"):
        OtlpDecoder().decode(data[:at] + b"\x7f" + data[at + 1 :])


def test_exemplars_of_a_refused_point_stay_with_its_row() -> None:
    point = pb.NumberDataPoint(time_unix_nano=NS, exemplars=[exemplar()])
    refused = pb.Sum(data_points=[point])  # Its temporality is unspecified.
    rows = OtlpDecoder().decode(export_request(pb.Metric(name="m", sum=refused)).SerializeToString()).rows
    assert rows.exemplars is not None
    assert rows.exemplars.row.tolist() == list(rows.errors) == [0]


def test_json_has_ids_in_hex() -> None:
    one = {
        "timeUnixNano": "5999999",
        "asDouble": 0.25,
        "traceId": TRACE.hex().upper(),
        "spanId": SPAN.hex(),
        "filteredAttributes": [{"key": "a", "value": {"stringValue": "b"}}],
    }
    point = {"timeUnixNano": str(NS), "asInt": "1", "exemplars": [one, {"asInt": "-3"}, {}]}
    metric = {"name": "m", "sum": {"dataPoints": [point], "aggregationTemporality": 2, "isMonotonic": True}}
    body = {"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}
    assert found(json_to_wire(json.dumps(body).encode())) == [
        ("m_total", 5, 0.25, IDS | {"a": "b"}),
        ("m_total", 0, -3.0, {}),
        ("m_total", 0, 0.0, {}),
    ]
    one["traceId"] = "xy"
    with pytest.raises(InvalidRequest, match="hex digits are expected"):
        json_to_wire(json.dumps(body).encode())


def test_a_request_without_exemplars_has_none() -> None:
    rows = OtlpDecoder().decode(number("sum")).rows
    assert rows.exemplars is None
    assert np.array_equal(rows.starts, [0, 1])
