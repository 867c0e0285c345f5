"""OTLP/JSON: the rules of the encoding, one row each, and invalid bodies."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from ingest.otlp.decode import OtlpDecoder
from ingest.otlp.wire import json_request
from ingest.otlp.wire.json_request import json_to_wire
from ingest.otlp.wire.values import DEPTH_MAX
from support.data.otlp_requests import samples_of
from support.oracles.otlp_twin import bits
from tsdb.model.errors import InvalidRequest


def body(point: Any, kind: str = "gauge", **fields: Any) -> bytes:
    """One metric with one point."""
    metric = {"name": "m", kind: {"dataPoints": [point], **fields}}
    return json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()


def decoded(data: bytes) -> list[tuple[str, int]]:
    """(labels but the name, bits of the value) of each series."""
    found = []
    for labels, _, value in samples_of(OtlpDecoder().decode(json_to_wire(data))):
        name = labels.pop("__name__").removeprefix("m")
        found.append((name + ",".join(f"{key}={labels[key]}" for key in sorted(labels)), value))
    return found


NUMBERS = [
    ({"asDouble": 1.5}, 1.5), ({"asDouble": "2.5"}, 2.5), ({"asDouble": "NaN"}, math.nan), ({"asDouble": 3}, 3.0),
    ({"asDouble": "Infinity"}, math.inf), ({"asDouble": "-Infinity"}, -math.inf), ({"asInt": "7"}, 7.0),
    ({"asInt": 7}, 7.0), ({"asInt": "-9223372036854775808"}, -(2.0**63)), ({"asInt": 7.0}, 7.0), ({}, 0.0),
    ({"asDouble": None, "asInt": 1}, 1.0), ({"asDouble": 1, "unknown": {"x": []}}, 1.0), ({"as_double": 5}, 0.0),
]  # fmt: skip


@pytest.mark.parametrize(("point", "value"), NUMBERS)
def test_numbers_may_be_numbers_or_text(point: dict[str, Any], value: float) -> None:
    assert decoded(body(point)) == [("", bits(value))]


VALUES = [
    ({"stringValue": "é"}, "é"), ({"boolValue": False}, "false"), ({"intValue": "-5"}, "-5"), ({"intValue": 5}, "5"),
    ({"doubleValue": 0.5}, "0.5"), ({"bytesValue": "AP8="}, "AP8="), ({"bytesValue": "_-8"}, "/+8="),
    ({"arrayValue": {"values": [{"intValue": 1}, {"stringValue": "x"}]}}, '[1,"x"]'),
    ({"kvlistValue": {"values": [{"key": "b", "value": {"intValue": 1}}, {"key": "a"}]}}, '{"a":null,"b":1}'),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), VALUES)
def test_attributes_of_each_kind_are_read(value: dict[str, Any], text: str) -> None:
    assert decoded(body({"attributes": [{"key": "a", "value": value}]})) == [(f"a={text}", 0)]


def test_each_kind_of_metric_is_read() -> None:
    histogram = {"count": "3", "sum": 1.5, "bucketCounts": ["1", 2], "explicitBounds": [0.5], "exemplars": [{}]}
    exponential = {"count": 2, "scale": -1, "zeroCount": 1, "zeroThreshold": 0.5, "positive": {"bucketCounts": ["1"]}}
    quantiles = {"count": 1, "sum": 2, "quantileValues": [{"quantile": 0.5, "value": 2}], "flags": 0}
    found = {
        "histogram": decoded(body(histogram, "histogram", aggregationTemporality=2)),
        "exponential": decoded(body(exponential, "exponentialHistogram", aggregationTemporality=2)),
        "summary": decoded(body(quantiles, "summary")),
        "sum": decoded(body({"asInt": "1"}, "sum", aggregationTemporality=2, isMonotonic=True)),
        "named": decoded(body({}, "sum", aggregationTemporality="AGGREGATION_TEMPORALITY_CUMULATIVE")),
    }
    assert {kind: [labels for labels, _ in rows] for kind, rows in found.items()} == {
        "histogram": ["_sum", "_count", "_bucketle=0.5", "_bucketle=+Inf"],
        "exponential": ["_count", "_bucketle=0.5", "_bucketle=1", "_bucketle=4", "_bucketle=+Inf"],
        "summary": ["_sum", "_count", "quantile=0.5"],
        "sum": ["_total"],
        "named": [""],
    }


WRONG = [
    (b"", "no JSON at byte 0 of 0"),
    (b'{"resourceMetrics": [}', "no JSON at byte 21 of 22"),
    (b'{"resourceMetrics": [NaN]}', "no JSON at byte"),
    (b"\xff", "no JSON at byte 0 of 1"),
    (b"[" * 5000, "no JSON at byte"),
    (b"[]", "the request is list; an object is expected"),
    (b'{"resourceMetrics": {}}', "the request.resourceMetrics is dict; an array is expected"),
    (body(5), r"metrics\[0\].gauge.dataPoints\[0\] is 5; an object is expected"),
    (body({"asInt": "x"}), r"dataPoints\[0\].asInt is 'x'; an integer from"),
    (body({"asInt": 1.5}), r"dataPoints\[0\].asInt is 1.5; an integer from"),
    (body({"asInt": True}), "asInt is True; an integer from"),
    (body({"asInt": "9223372036854775808"}), "asInt is '9223372036854775808'; an integer"),
    (body({"asInt": "٣"}), "an integer from"),
    (body({"timeUnixNano": -1}), "timeUnixNano is -1; an integer from 0 to 18446744073709551615"),
    (body({"asDouble": "x"}), "asDouble is 'x'; a number is expected"),
    (body({"asDouble": []}), "asDouble is list; a number is expected"),
    (body({"attributes": [{"key": 5}]}), r"attributes\[0\].key is 5; text is expected"),
    (body({"attributes": [{"value": {"boolValue": 1}}]}), "boolValue is 1; true or false is expected"),
    (body({"attributes": [{"value": {"bytesValue": "a"}}]}), "bytesValue is 'a'; base64 is expected"),
    (body({"flags": 2**32}), "flags is 4294967296; an integer"),
    (body({}, "sum", aggregationTemporality="DELTA"), "aggregationTemporality is 'DELTA'; an integer"),
]


@pytest.mark.parametrize(("data", "text"), WRONG)
def test_a_body_that_is_no_request_is_refused_with_its_place(data: bytes, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text) as caught:
        json_to_wire(data)
    assert caught.value.reason == "malformed_request"
    assert len(caught.value.message) < 600


def test_nested_attributes_are_refused_beyond_the_limit() -> None:
    value: dict[str, Any] = {"stringValue": "x"}
    for _ in range(300):
        value = {"arrayValue": {"values": [value]}}
    with pytest.raises(InvalidRequest, match=f"nested in more than {DEPTH_MAX}"):
        json_to_wire(body({"attributes": [{"key": "a", "value": value}]}))


def test_a_body_of_endless_values_is_refused_before_it_is_parsed() -> None:
    data = b'{"x": [' + b"[]," * (json_request.VALUES_MAX // 2 + 1) + b"[]]}"
    with pytest.raises(InvalidRequest, match="JSON values or more; limit is 1000000") as caught:
        json_to_wire(data)
    assert caught.value.reason == "message_too_large"


def test_text_that_no_utf8_has_is_refused() -> None:
    with pytest.raises(InvalidRequest) as caught:
        json_to_wire(body({"attributes": [{"key": "\ud800"}]}))
    assert caught.value.reason == "malformed_request"
