"""Native histograms survive the wire bit for bit, and a message without a meaning is refused by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from support.data.detail_cases import histograms
from tsdb.model.details import SampleDetails, same_details
from tsdb.v1 import common_pb2
from tsdb.wire.histograms import SHAPE_PARTS_MAX, decode_histograms, encode_histograms

OF = np.array([2, -1, 0, 1, -1, 3, 4, 5, 6, 7, 8, 9, 10, 11])
COLUMNS = histograms([0, 0, 1, 1, 4, 1, 1, 2, 2, 2, 0, 0], 3)
SUMS = np.where(OF >= 0, COLUMNS.sums[np.maximum(OF, 0)], 7.0)


def message() -> common_pb2.Histograms:
    return common_pb2.Histograms.FromString(encode_histograms(COLUMNS, OF).SerializeToString())


@pytest.mark.parametrize("is_integer", [True, False])
def test_histograms_of_all_shapes_arrive_as_they_were(is_integer: bool) -> None:
    columns = histograms([0, 0, 1, 1, 4, 1, 1, 2, 2, 2, 0, 0], 3, is_integer=is_integer)
    sums = np.where(OF >= 0, columns.sums[np.maximum(OF, 0)], 7.0)
    sent = common_pb2.Histograms.FromString(encode_histograms(columns, OF).SerializeToString())
    got = decode_histograms(sent, sums)
    assert got.errors == {}
    assert same_details(SampleDetails(None, columns, OF), SampleDetails(None, got.columns, got.histogram_of))


def test_an_offset_beyond_32_bits_becomes_two_spans_of_the_same_buckets() -> None:
    columns = histograms([3], 3)
    got = decode_histograms(encode_histograms(columns, np.array([0])), columns.sums)
    assert got.errors == {}
    assert (got.columns.shapes[0].indexes == columns.shapes[3].indexes).all()


def test_none_arrive_as_none() -> None:
    floats = np.full(3, -1)
    got = decode_histograms(encode_histograms(COLUMNS, floats), np.zeros(3))
    assert len(got.columns) == 0
    assert got.histogram_of.tolist() == [-1, -1, -1]


FIELDS = tuple(field.name for field in common_pb2.Histograms.DESCRIPTOR.fields)


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("change", [lambda data: data[:-1], lambda data: data + data[-1:], lambda data: data * 2])
def test_arrays_that_do_not_fit_together_are_refused(field: str, change: Callable[[bytes], bytes]) -> None:
    broken = message()
    setattr(broken, field, change(getattr(broken, field)))
    with pytest.raises(ValueError, match=r"histograms|shapes"):
        decode_histograms(broken, SUMS)


@pytest.mark.parametrize(
    ("field", "items"),
    [("samples", [0, 0]), ("samples", [3, 1]), ("samples", [0, 99])],
)
def test_samples_that_are_not_there_or_come_twice_are_refused(field: str, items: list[int]) -> None:
    two = encode_histograms(COLUMNS, np.array([0, 1]))
    setattr(two, field, np.array(items, "<u4").tobytes())
    with pytest.raises(ValueError, match="must ascend"):
        decode_histograms(two, SUMS[:2])


def one(**changes: bytes) -> common_pb2.Histograms:
    """A message with one histogram of the first shape, and these changes."""
    found = encode_histograms(COLUMNS, np.array([0]))
    for field, data in changes.items():
        setattr(found, field, data)
    return found


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"schemas": np.array([9], "<i4").tobytes()}, "histogram_invalid_schema"),
        ({"spans": np.array([-20, 6, -2, 4, 5, 2], "<i4").tobytes()}, "histogram_span_negative_offset"),
        ({"spans": np.array([-20, 6, 2, 60_000, 5, 20_000], "<i4").tobytes()}, "histogram_too_many_buckets"),
        ({"spans": np.array([-20, 6, 2, 4, 5, 3], "<i4").tobytes()}, "histogram_spans_mismatch"),
        ({"counts": np.array([1e6], "<f8").tobytes()}, "histogram_count_mismatch"),
        ({"counts": np.array([-1.0], "<f8").tobytes()}, "histogram_negative_count"),
        ({"buckets": np.full(12, -1.0, "<f8").tobytes()}, "histogram_negative_bucket_count"),
        ({"hints": b"\x09"}, "histogram_unknown_hint"),
    ],
)
def test_a_histogram_without_a_meaning_has_an_error_by_name(changes: dict[str, bytes], reason: str) -> None:
    got = decode_histograms(one(**changes), np.array([1.0]))
    assert [error.reason for error in got.errors.values()] == [reason]


def test_more_parts_of_shapes_than_the_limit_are_refused_before_they_are_made() -> None:
    spans = SHAPE_PARTS_MAX + 1
    wide = one(
        span_counts=np.array([spans, 0], "<u4").tobytes(), spans=np.tile(np.array([1, 0], "<i4"), spans).tobytes()
    )
    with pytest.raises(ValueError, match=f"the limit is {SHAPE_PARTS_MAX}"):
        decode_histograms(wide, np.array([1.0]))


def test_spans_that_claim_more_buckets_than_came_take_no_memory_for_them() -> None:
    count = 60_000
    many = common_pb2.Histograms(
        samples=np.arange(count, dtype="<u4").tobytes(),
        shape_of=np.arange(count, dtype="<u4").tobytes(),
        bucket_counts=bytes(4 * count),
        counts=bytes(8 * count),
        zero_counts=bytes(8 * count),
        hints=bytes(count),
        is_integer=bytes(count),
        schemas=bytes(4 * count),
        zero_thresholds=bytes(8 * count),
        span_counts=np.tile(np.array([1, 0], "<u4"), count).tobytes(),
        spans=np.tile(np.array([0, 65_000], "<i4"), count).tobytes(),
        bound_counts=bytes(4 * count),
    )
    got = decode_histograms(many, np.zeros(count))
    assert len(got.errors) == count
    assert all("indexes" not in vars(shape) for shape in got.columns.shapes)
