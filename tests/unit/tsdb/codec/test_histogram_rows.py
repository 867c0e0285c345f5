"""Histograms as Arrow structs: they come back bit for bit, and rows that have no meaning are corrupt."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from support.data.detail_cases import BOUNDS, WIDE, histograms
from tsdb.codec.histogram_rows import HISTOGRAM, histogram_column, read_details, start_column
from tsdb.model.details import SampleDetails, same_details
from tsdb.model.errors import CorruptData
from tsdb.model.histograms import HistogramShape

STARTS = np.array([0, 5_000, 5_000, 7_001, 0, 1], np.int64)


def comes_back(details: SampleDetails | None, samples: int) -> None:
    columns = histogram_column(details, samples), start_column(details, samples)
    got = read_details(*(pa.chunked_array([one[:2], one[2:]]) for one in columns))
    assert same_details(got, details)


@pytest.mark.parametrize("is_integer", [True, False])
@pytest.mark.parametrize("kinds", [[0] * 6, [0, 0, 1, 1, 4, 2], [2, 4, 2, 0, 4, 4], [0, 2, 0, 2, 0, 2]])
@pytest.mark.parametrize("starts", [None, STARTS])
def test_histograms_of_all_samples_come_back(
    is_integer: bool, kinds: list[int], starts: np.ndarray[tuple[int], np.dtype[np.int64]] | None
) -> None:
    comes_back(SampleDetails(starts, histograms(kinds, 1, is_integer=is_integer), np.arange(6)), 6)


def test_an_offset_beyond_32_bits_keeps_its_buckets() -> None:
    given = histograms([3, 3], 1)
    got = read_details(histogram_column(SampleDetails(None, given, np.arange(2)), 2), start_column(None, 2))
    assert got is not None
    assert got.histograms is not None
    assert got.histograms.shapes[0].indexes.tolist() == given.shapes[3].indexes.tolist()
    assert got.histograms.buckets.tolist() == given.buckets.tolist()


def test_floats_between_histograms_are_null() -> None:
    details = SampleDetails(None, histograms([0, 1, 2], 1), np.array([-1, 0, -1, 1, 2, -1]))
    comes_back(details, 6)
    assert histogram_column(details, 6).is_null().to_pylist() == [True, False, True, False, False, True]


def test_start_timestamps_alone_and_nothing_at_all_come_back() -> None:
    comes_back(SampleDetails(STARTS), 6)
    comes_back(None, 6)


def test_a_row_has_the_fields_that_readers_know() -> None:
    details = SampleDetails(None, histograms([0], 1), np.arange(1))
    (row,) = histogram_column(details, 1).to_pylist()
    assert row["schema"] == WIDE.schema
    assert [(span["offset"], span["length"]) for span in row["positive_spans"]] == list(WIDE.positive)
    assert row["count"] == sum(row["positive_counts"]) + sum(row["negative_counts"]) + row["zero_count"]
    assert row["reset_hint"] in {"unknown", "reset", "not_reset", "gauge"}
    assert row["is_integer"] is True


@pytest.mark.parametrize("field", ["positive_spans", "negative_spans", "custom_bounds", "schema", "zero_threshold"])
def test_a_shape_that_differs_in_one_field_is_another_shape(field: str) -> None:
    shapes = {
        "positive_spans": (WIDE, HistogramShape(3, WIDE.zero_threshold, ((-20, 6), (3, 4)), ((5, 2),))),
        "negative_spans": (WIDE, HistogramShape(3, WIDE.zero_threshold, ((-20, 6), (2, 4)), ((6, 2),))),
        "custom_bounds": (BOUNDS, HistogramShape(-53, positive=((0, 4),), bounds=(0.1, 0.5, 3.5))),
        "schema": (WIDE, HistogramShape(4, WIDE.zero_threshold, WIDE.positive, WIDE.negative)),
        "zero_threshold": (WIDE, HistogramShape(3, 0.5, WIDE.positive, WIDE.negative)),
    }[field]
    given = histograms([2 if field == "custom_bounds" else 0] * 4, 1)
    number = np.array([0, 0, 1, 0], np.int32)
    parts = (given.starts, given.buckets, given.counts, given.sums, given.zero_counts, given.hints, given.is_integer)
    comes_back(SampleDetails(None, type(given)(shapes, number, *parts), np.arange(4)), 4)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema": 9}, "schema 9"),
        ({"positive_counts": [1.0]}, "do not fit the spans"),
        ({"custom_bounds": [1.0]}, "custom bounds"),
        ({"positive_spans": [{"offset": 0, "length": -1}]}, "length -1"),
    ],
)
def test_a_row_of_another_program_without_a_meaning_is_corrupt(change: dict[str, object], why: str) -> None:
    details = SampleDetails(None, histograms([0, 0], 1), np.arange(2))
    rows = histogram_column(details, 2).to_pylist()
    changed = pa.array([rows[0], {**rows[1], **change}], HISTOGRAM)
    with pytest.raises(CorruptData, match=why):
        read_details(changed, start_column(None, 2))


def test_a_table_without_the_kind_of_counts_has_integers_where_counts_are_whole() -> None:
    details = SampleDetails(None, histograms([0, 0], 1, is_integer=False), np.arange(2))
    column = histogram_column(details, 2)
    fields = [one for one in HISTOGRAM if one.name != "is_integer"]
    older = pa.StructArray.from_arrays([column.field(one.name) for one in fields], fields=fields)
    assert same_details(read_details(older, start_column(None, 2)), details)
