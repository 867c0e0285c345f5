"""Invalid bytes, and requests that would cost too much, end as InvalidRequest before anything is allocated."""

from __future__ import annotations

import random
import struct

import numpy as np
import pytest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue

from ingest.otlp.decode import OtlpDecoder, OtlpLimits
from ingest.otlp.wire.tables import TableLimits
from ingest.otlp.wire.values import DEPTH_MAX
from support.data.otlp_requests import any_value, export_request, gauge, number_point, samples_of
from support.oracles.otlp_twin import bits
from tsdb.model.errors import InvalidRequest


def field(number: int, content: bytes) -> bytes:
    """A length-delimited field with its tag."""
    size, out = len(content), bytearray()
    while size > 127:
        out.append(size & 127 | 128)
        size >>= 7
    return bytes((number << 3 | 2,)) + bytes(out) + bytes((size,)) + content


def wrapped(metric: bytes) -> bytes:
    """A request with one encoded Metric."""
    return field(1, field(2, field(2, metric)))


def gauge_of(point: bytes) -> bytes:
    return wrapped(field(1, b"m") + field(5, field(1, point)))


VALID = gauge_of(b"\x19" + struct.pack("<Q", 10**9) + b"\x21" + struct.pack("<d", 2.0))


MALFORMED = {
    "a cut tag": (b"\x8a", 0),
    "a field number of 0": (b"\x02\x00", 0),
    "a length behind the end": (b"\x0a\x05abc", 0),
    "a length of 2^63": (b"\x0a" + b"\xff" * 9 + b"\x01", 0),
    "a group": (b"\x0b\x0c", 0),
    "wire type 7": (b"\x0f", 0),
    "a varint of 11 bytes": (b"\x10" + b"\x80" * 10 + b"\x01", 0),
    "a cut number in a point": (gauge_of(b"\x19\x00"), 13),
    "bounds that are no whole numbers": (wrapped(field(1, b"h") + field(9, field(1, field(7, b"1234567")))), 15),
    "a cut count of a bucket": (wrapped(field(10, field(1, field(8, field(2, b"\x80"))))), 14),
    "buckets of one sign around those of the other": (
        wrapped(
            field(
                10,
                field(
                    1,
                    field(8, field(2, b"\x01"))
                    + field(9, b"")
                    + field(9, field(2, b"\x01"))
                    + field(8, field(2, b"\x01")),
                ),
            )
        ),
        24,
    ),
    "an attribute's value": (gauge_of(field(7, field(2, b"\x0a\x09x"))), 17),
}


@pytest.mark.parametrize("case", MALFORMED)
def test_bytes_that_break_the_format_are_refused_with_the_byte(case: str) -> None:
    data, at = MALFORMED[case]
    with pytest.raises(InvalidRequest, match=rf"at byte {at} of {len(data)}$") as caught:
        OtlpDecoder().decode(data)
    assert caught.value.reason == "malformed_request"


def test_every_cut_of_a_request_is_refused_or_decodes() -> None:
    whole = export_request(gauge(number_point(a=["x", {"b": 1.5}]), number_point(2)), service__name="s", os="x")
    data = whole.SerializeToString()
    decoder = OtlpDecoder()
    assert len(decoder.decode(b"").rows) == 0  # A request may be empty.
    for end in range(1, len(data)):
        with pytest.raises(InvalidRequest, match="at byte"):
            decoder.decode(data[:end])


def test_flipped_bits_never_crash_the_decoder() -> None:
    seed = 16
    rng, decoder = random.Random(seed), OtlpDecoder()
    data = export_request(
        gauge(number_point(1.0, a="x", b=[1, {"c": b"y"}]), number_point(5, d=2.5)), service__name="s", os="x"
    ).SerializeToString()
    refused = 0
    for _ in range(3000):
        broken = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            broken[rng.randrange(len(broken))] ^= 1 << rng.randrange(8)
        try:
            rows = decoder.decode(bytes(broken)).rows
            assert rows.label_starts[-1] == len(rows.labels)
            assert (np.diff(rows.label_starts) >= 0).all()
        except InvalidRequest:
            refused += 1
    assert 0 < refused < 3000, f"seed {seed}"


def test_unknown_fields_and_wrong_wire_types_are_skipped() -> None:
    unknown = field(14, b"x") + b"\x9d\x01abcd" + b"\x98\x01\x05"
    point = b"\x19" + struct.pack("<Q", 10**9) + b"\x21" + struct.pack("<d", 2.0)
    strange = field(3, b"12345678") + b"\x20\x05"  # A time as text, a double as a varint.
    data = field(1, unknown + field(2, unknown + field(2, unknown + field(1, b"m") + field(5, unknown + field(
        1, strange + point + unknown)))))  # fmt: skip
    assert samples_of(OtlpDecoder().decode(unknown + data)) == samples_of(OtlpDecoder().decode(VALID))


@pytest.mark.parametrize("sign", [8, 9])
def test_buckets_that_come_in_two_messages_are_joined(sign: int) -> None:
    parts = b"\x08\x02" + field(2, b"\x01\x02"), field(2, b"\x03")
    points = [field(sign, b"".join(parts)), b"".join(field(sign, part) for part in parts)]
    requests = [wrapped(field(1, b"h") + field(10, b"\x10\x02" + field(1, point))) for point in points]
    whole, joined = [samples_of(OtlpDecoder().decode(request)) for request in requests]
    assert whole == joined
    assert len(whole) > 3


def test_repeated_numbers_may_be_packed_or_single() -> None:
    numbers = [struct.pack("<Q", count) for count in (1, 2, 3)]
    bounds = [struct.pack("<d", bound) for bound in (0.5, 1.5)]
    packed = field(6, b"".join(numbers)) + field(7, b"".join(bounds))
    single = b"".join(b"\x39" + bound for bound in bounds) + b"".join(b"\x31" + number for number in numbers)
    split = field(6, numbers[0]) + b"\x39" + bounds[0] + field(6, b"".join(numbers[1:])) + field(7, bounds[1])
    requests = [wrapped(field(1, b"h") + field(9, b"\x10\x02" + field(1, point))) for point in (packed, single, split)]
    decoded = [samples_of(OtlpDecoder().decode(request)) for request in requests]
    assert len(decoded[0]) == 4
    assert decoded[1] == decoded[0] == decoded[2]


def test_parts_of_one_metric_are_merged_and_the_last_kind_counts() -> None:
    def point(value: float) -> bytes:
        return field(1, b"\x21" + struct.pack("<d", value))

    parts = field(1, b"m") + field(11, field(1, b"")) + field(5, point(1.0)) + field(1, b"n") + field(5, point(2.0))
    samples = samples_of(OtlpDecoder().decode(wrapped(parts)))
    assert [(labels["__name__"], value) for labels, _, value in samples] == [("n", bits(1.0)), ("n", bits(2.0))]
    counter = field(7, point(1.0) + b"\x10\x02") + field(7, point(2.0) + b"\x18\x01")
    samples = samples_of(OtlpDecoder().decode(wrapped(field(1, b"c") + counter)))
    assert [labels["__name__"] for labels, _, _ in samples] == ["c_total", "c_total"]


def test_a_second_resource_is_refused() -> None:
    resource = field(1, field(1, field(1, b"k")))
    with pytest.raises(InvalidRequest, match="breaks the protobuf format"):
        OtlpDecoder().decode(field(1, resource * 2 + VALID[2:]))


@pytest.mark.parametrize("text", [b"\xff", b"a\xffb"])
def test_the_byte_that_separates_labels_is_refused_in_names_and_values(text: bytes) -> None:
    attributes = {"value": field(1, b"k") + field(2, field(1, text)), "key": field(1, text) + field(2, field(1, b"v"))}
    for place, attribute in attributes.items():
        errors = OtlpDecoder().decode(gauge_of(field(7, attribute))).rows.errors
        assert [error.reason for error in errors.values()] == ["labels_malformed"], place
    resource = field(1, field(1, field(1, field(1, b"service.name") + field(2, field(1, text)))) + VALID[2:])
    assert [error.reason for error in OtlpDecoder().decode(resource).rows.errors.values()] == ["labels_malformed"]


@pytest.mark.parametrize("key", [b"\x80", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\xe2\x82", b"a\xc3"])
def test_a_key_that_is_not_utf8_is_refused(key: bytes) -> None:
    attribute = field(1, key) + field(2, field(1, b"v"))
    errors = OtlpDecoder().decode(gauge_of(field(7, attribute))).rows.errors
    assert [error.message for error in errors.values()] == [
        "a data point of metric 'm' has an attribute that is not valid UTF-8"
    ]


def nested(depth: int) -> AnyValue:
    value = any_value("x")
    for _ in range(depth):
        outer = AnyValue()
        outer.array_value.values.append(value)
        value = outer
    return value


def test_attributes_are_nested_up_to_the_limit() -> None:
    request = export_request(gauge(number_point()))
    point = request.resource_metrics[0].scope_metrics[0].metrics[0].gauge.data_points[0]
    point.attributes.add(key="a", value=nested(DEPTH_MAX - 1))
    labels, _, _ = samples_of(OtlpDecoder().decode(request.SerializeToString()))[0]
    assert labels["a"] == "[" * (DEPTH_MAX - 1) + '"x"' + "]" * (DEPTH_MAX - 1)


def bomb(levels: int) -> bytes:
    value = b""
    for _ in range(levels):
        value = field(5, field(1, value))
    return value


@pytest.mark.parametrize("place", ["point", "resource"])
def test_a_depth_bomb_is_refused(place: str) -> None:
    attribute = field(1, b"k") + field(2, bomb(20_000))
    data = gauge_of(field(7, attribute)) if place == "point" else field(1, field(1, field(1, attribute)) + VALID[2:])
    with pytest.raises(InvalidRequest, match=f"nested in more than {DEPTH_MAX}") as caught:
        OtlpDecoder().decode(data)
    assert caught.value.reason == "malformed_request"


def test_endless_attributes_refuse_the_point_and_make_no_tables() -> None:
    attribute = field(7, field(1, b"k") + field(2, b"\x22\x00"))  # An empty array: text that Python would make.
    reserved: list[int] = []
    export = OtlpDecoder().decode(gauge_of(attribute * 200_000), reserved.append)
    assert [error.message for error in export.rows.errors.values()] == [
        "a data point of metric 'm' has 200000 attributes; limit is 128 (twice labels_max)"
    ]
    assert sum(reserved) < 10_000


def test_endless_parts_without_points_make_no_tables() -> None:
    empty = field(1, field(2, field(2, b"")) + field(1, b""))
    reserved: list[int] = []
    export = OtlpDecoder().decode(empty * 100_000, reserved.append)
    assert len(export.rows) == export.points == sum(reserved) == 0


LIMITS = {
    "points": (gauge_of(b"") * 11, OtlpLimits(TableLimits(rows_max=10)), "too_many_series", "11 series; limit is 10"),
    "buckets": (
        wrapped(field(9, b"\x10\x02" + field(1, field(6, bytes(8 * 9)) + field(7, bytes(8 * 9))))),
        OtlpLimits(TableLimits(rows_max=10)), "too_many_series", "12 series; limit is 10",
    ),
    "exponential buckets": (
        wrapped(field(10, b"\x10\x02" + field(1, field(8, field(2, bytes(9)))))),
        OtlpLimits(TableLimits(rows_max=10)), "too_many_series", "15 series; limit is 10",
    ),
    "odd values": (
        gauge_of(field(7, field(1, b"k") + field(2, field(7, b"b"))) * 3),
        OtlpLimits(TableLimits(odd_max=2)), "message_too_large", "3 attribute values that are double",
    ),
    "label bytes": (
        gauge_of(field(7, field(1, b"k" * 500) + field(2, field(1, b"v" * 500)))),
        OtlpLimits(label_bytes_max=1000), "request_too_large", "send fewer data points",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", LIMITS)
def test_what_a_request_may_become_is_bounded(case: str) -> None:
    data, limits, reason, text = LIMITS[case]
    with pytest.raises(InvalidRequest, match=text) as caught:
        OtlpDecoder(limits=limits).decode(data)
    assert caught.value.reason == reason


def test_a_reservation_that_is_refused_ends_the_request() -> None:
    def full(size: int) -> None:
        raise InvalidRequest("no room", reason="request_bytes")

    with pytest.raises(InvalidRequest, match="no room"):
        OtlpDecoder().decode(VALID, full)
