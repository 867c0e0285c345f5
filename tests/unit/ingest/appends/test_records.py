"""Joined records: what a reader gets from them is what it gets from the records one after the other."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ingest.appends.records import first_series_id, halve_record, join_records, newest_ms, record_counts
from tsdb.codec.records.log_record import decode_records, encode_record, id_vector_hash
from tsdb.model.details import SampleDetails
from tsdb.model.histograms import HistogramColumns, HistogramShape

PACKS = 5

Sample = tuple[int, int, int, int]  # (pack, series, ts_ms, bits)

samples = st.tuples(
    st.integers(1, PACKS),
    st.integers(1, 4),
    st.integers(1_700_000_000_000, 1_700_000_000_003),
    st.integers(-(2**63), 2**63 - 1),
)
requests = st.lists(st.lists(samples, min_size=1, max_size=12), min_size=1, max_size=6)


def record(rows: list[Sample], *, detailed: bool = False) -> bytes:
    """The record of one request: packs by id, series by id, equal ones as they came. detailed: samples with an odd
    value are histograms of that count, and have a start timestamp."""
    rows = sorted(rows, key=lambda row: row[:2])
    packs = np.array([row[0] for row in rows], np.uint64)
    ids, lengths = np.unique(packs, return_counts=True)
    series = np.array([row[0] * 100 + row[1] for row in rows], np.uint64)
    ts_ms = np.array([row[2] for row in rows], np.int64)
    values = np.array([row[3] for row in rows], np.int64).view(np.float64)
    details = None
    if detailed:
        numbers = np.array([row[3] % 10 for row in rows], np.int64)
        is_histogram = numbers % 2 == 1
        values = np.where(is_histogram, numbers / 4, values)
        details = SampleDetails(
            numbers * is_histogram,
            plain_histograms(numbers[is_histogram]),
            np.where(is_histogram, np.cumsum(is_histogram) - 1, -1),
        ).part(0, len(rows))
    return encode_record(ids, lengths.astype(np.uint32), series, ts_ms, values, details)


def plain_histograms(counts: NDArray[np.int64]) -> HistogramColumns:
    """Histograms of these counts, all in one bucket. Its index is the count modulo 4."""
    number, floats = len(counts), counts.astype(np.float64)
    shapes = tuple(HistogramShape(0, 0.0, ((index, 1),)) for index in range(4))
    zeros, starts = np.zeros(number), np.arange(number + 1)
    kinds = np.zeros(number, np.uint8), np.ones(number, np.bool_)
    return HistogramColumns(shapes, (counts % 4).astype(np.int32), starts, floats, floats, floats / 4, zeros, *kinds)


def counts_of(records: list[bytes]) -> list[int]:
    """The count of the histogram of each sample in log order, which is its start timestamp too; 0 for a float."""
    decoded = decode_records(b"".join(records), np.cumsum([0, *map(len, records)], dtype=np.int64))
    assert decoded.all_ok
    details = decoded.details or SampleDetails()
    if details.histograms is None or details.histogram_of is None or details.start_ms is None:
        return [0] * len(decoded.ts_ms)
    found = np.where(details.histogram_of < 0, 0, details.histograms.counts[details.histogram_of])
    assert found.tolist() == details.start_ms.tolist()
    return [int(count) for count in found]


@given(requests, st.lists(st.booleans(), min_size=6, max_size=6))
def test_details_stay_with_their_samples_in_joined_records_and_halves(
    made: list[list[Sample]], which: list[bool]
) -> None:
    records = [record(rows, detailed=detailed) for rows, detailed in zip(made, which, strict=False)]
    joined = join_records(records)
    arrived = list(zip(samples_of(records), counts_of(records), strict=True))
    expected = sorted(arrived, key=lambda row: row[0][:2])
    assert list(zip(samples_of([joined]), counts_of([joined]), strict=True)) == expected
    halves = halve_record(joined)
    assert list(zip(samples_of(halves), counts_of(halves), strict=True)) == expected


def samples_of(records: list[bytes]) -> list[tuple[int, int, int, int]]:
    """(pack, series, ts_ms, bits) in log order."""
    starts = np.cumsum([0, *map(len, records)], dtype=np.int64)
    decoded = decode_records(b"".join(records), starts)
    assert decoded.all_ok
    packs = np.repeat(decoded.pack_id, decoded.pack_length).tolist()
    bits = decoded.value.view(np.int64).tolist()
    return list(zip(packs, decoded.series_id.tolist(), decoded.ts_ms.tolist(), bits, strict=True))


@given(requests)
def test_a_joined_record_is_the_sorted_samples_in_their_order_of_arrival(made: list[list[Sample]]) -> None:
    records = [record(rows) for rows in made]
    arrived = samples_of(records)
    assert samples_of([join_records(records)]) == sorted(arrived, key=lambda row: row[:2])


@given(requests)
def test_each_pack_is_named_once_with_the_hash_of_its_ids(made: list[list[Sample]]) -> None:
    joined = join_records([record(rows) for rows in made])
    decoded = decode_records(joined, np.array([0, len(joined)], np.int64))
    assert len(set(decoded.pack_id.tolist())) == len(decoded.pack_id)
    ends = np.cumsum(decoded.pack_length, dtype=np.int64)
    starts = ends - decoded.pack_length
    hashes = [id_vector_hash(decoded.series_id[start:end]) for start, end in zip(starts, ends, strict=True)]
    assert decoded.id_hash.tolist() == hashes


def test_the_parts_of_a_scrape_give_one_id_vector_in_whatever_order_they_come() -> None:
    first, second = record([(1, 1, 7, 0), (1, 3, 7, 0)]), record([(1, 2, 7, 0), (1, 4, 7, 0)])
    whole = record([(1, series, 7, 0) for series in (1, 2, 3, 4)])
    assert join_records([first, second]) == join_records([second, first]) == whole


@given(requests.map(lambda made: made[0]))
def test_halves_are_the_record_cut_in_two(rows: list[Sample]) -> None:
    whole = record(rows)
    halves = halve_record(whole)
    assert samples_of(halves) == samples_of([whole])
    assert len(halves) == min(2, len(rows))
    packs, count = record_counts(whole)
    assert (packs, count) == (len({row[0] for row in rows}), len(rows))
    assert newest_ms(whole) == max(row[2] for row in rows)
    assert first_series_id(whole) == samples_of([whole])[0][1]
