"""Grouping and record ranges against their plain Python twins."""

from __future__ import annotations

import numpy as np
import pytest

from ingest.appends.records import Grouped, RecordRange, encode_ranges, group, ranges_by_partition, split
from ingest.rows import ResolvedSeries, Rows, make_rows, unresolved
from tsdb.codec.records.log_record import decode_records, encode_record, encoded_size


def random_request(seed: int, count: int) -> tuple[Rows, ResolvedSeries, np.ndarray]:
    """Rows with few partitions and packs, repeated series, refused series."""
    rng = np.random.default_rng(seed)
    series = unresolved(np.zeros(count, np.uint64), np.zeros(count, np.uint64))
    series.partition[:] = rng.integers(0, 3, count)
    series.pack_id[:] = rng.integers(0, 4, count).astype(np.uint64) * np.uint64(2**62) + series.partition.astype(
        np.uint64
    )
    series.series_id[:] = rng.integers(0, 2**64, count, dtype=np.uint64) if seed % 2 else rng.integers(0, 5, count)
    counts = rng.integers(1, 4, count).astype(np.uint32)
    samples = int(counts.sum())
    rows = make_rows(
        [b"x"] * count,
        counts,
        rng.integers(0, 9, samples),
        rng.integers(0, 2**64, samples, dtype=np.uint64).view(float),
    )
    return rows, series, rng.random(count) < 0.8


def group_twin(rows: Rows, series: ResolvedSeries, good: np.ndarray) -> list[tuple[int, int, int, int, int]]:
    """(partition, pack, series, ts, bits) in log order."""
    kept = [row for row in range(len(good)) if good[row]]
    kept.sort(key=lambda row: (series.partition[row], series.pack_id[row], series.series_id[row]))
    return [
        (
            int(series.partition[row]),
            int(series.pack_id[row]),
            int(series.series_id[row]),
            int(rows.ts_ms[i]),
            int(rows.values.view(np.int64)[i]),
        )
        for row in kept
        for i in range(rows.starts[row], rows.starts[row + 1])
    ]


def flat(grouped: Grouped) -> list[tuple[int, int, int, int, int]]:
    pack = np.repeat(grouped.pack_id, np.diff(grouped.pack_end, prepend=0))
    partition = np.repeat(grouped.partition, np.diff(grouped.partition_end, prepend=0))
    columns = (partition, pack, grouped.series_id, grouped.ts_ms, grouped.values.view(np.int64))
    return list(zip(*(column.tolist() for column in columns), strict=True))


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 16, 17, 100, 1000])
@pytest.mark.parametrize("seed", range(6))
def test_groups_are_what_a_stable_sort_says(seed: int, count: int) -> None:
    rows, series, good = random_request(seed, count)
    grouped = group(rows, series, good)
    assert flat(grouped) == group_twin(rows, series, good)
    assert len(set(grouped.partition.tolist())) == len(grouped.partition), "one range a partition"


def test_rows_in_order_already_stay() -> None:
    rows, series, good = random_request(1, 500)
    order = np.lexsort((series.series_id, series.pack_id, series.partition))
    for name in ("partition", "pack_id", "series_id"):
        setattr(series, name, getattr(series, name)[order])
    assert flat(group(rows, series, good)) == group_twin(rows, series, good)


@pytest.mark.parametrize(("count", "partitions"), [(1000, 18), (1000, 1), (100, 5000), (3, 18), (4000, 700)])
def test_packs_of_random_ids_are_sorted_over_any_number_of_partitions(count: int, partitions: int) -> None:
    rows, series, good = random_request(5, count)
    rng = np.random.default_rng(count + partitions)
    packs = rng.integers(0, 2**64, 1 + count // 5, dtype=np.uint64)
    series.pack_id[:] = rng.choice(packs, count)
    series.partition[:] = (series.pack_id % np.uint64(partitions)).astype(np.int64)
    assert flat(group(rows, series, good)) == group_twin(rows, series, good)


@pytest.mark.parametrize("bytes_max", [1, 120, 500, 4000, 1 << 20])
def test_ranges_cover_each_partition_in_order_and_keep_the_size(bytes_max: int) -> None:
    rows, series, good = random_request(3, 400)
    grouped = group(rows, series, good)
    parts = split(grouped, ranges_by_partition(grouped), bytes_max)
    assert [part.start for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == len(grouped.ts_ms)
    for whole in ranges_by_partition(grouped):
        of_whole = [part for part in parts if whole.start <= part.start < whole.end]
        assert of_whole[-1].end == whole.end
        assert {part.partition for part in of_whole} == {whole.partition}
    assert all(len(r.data) <= bytes_max or r.part.samples == 1 for r in encode_ranges(grouped, parts))


@pytest.mark.parametrize("bytes_max", [1, 900, 1 << 20])
def test_records_decode_to_the_samples_of_their_partition(bytes_max: int) -> None:
    rows, series, good = random_request(5, 300)
    grouped = group(rows, series, good)
    got = []
    for record in encode_ranges(grouped, split(grouped, ranges_by_partition(grouped), bytes_max)):
        decoded = decode_records(record.data, np.array([0, len(record.data)]))
        assert decoded.status.tolist() == [0]
        assert record.newest_ms == decoded.ts_ms.max()
        packs = np.repeat(decoded.pack_id, decoded.pack_length).tolist()
        columns = (packs, decoded.series_id.tolist(), decoded.ts_ms.tolist(), decoded.value.view(np.int64).tolist())
        got += [(record.part.partition, *fields) for fields in zip(*columns, strict=True)]
    assert got == group_twin(rows, series, good)


def test_a_record_is_what_the_codec_makes_of_its_range() -> None:
    rows, series, good = random_request(7, 60)
    grouped = group(rows, series, good)
    for record in encode_ranges(grouped, split(grouped, ranges_by_partition(grouped), 700)):
        part = record.part
        touched = (grouped.pack_end > part.start) & (np.r_[0, grouped.pack_end[:-1]] < part.end)
        lengths = np.diff(np.minimum(grouped.pack_end[touched], part.end), prepend=part.start).astype(np.uint32)
        taken = slice(part.start, part.end)
        assert record.data == encode_record(
            grouped.pack_id[touched], lengths, grouped.series_id[taken], grouped.ts_ms[taken], grouped.values[taken]
        )


def test_one_sample_is_not_halved_further() -> None:
    one = RecordRange(2, 5, 6)
    assert one.halves() == [one]
    assert RecordRange(2, 5, 8).halves() == [RecordRange(2, 5, 6), RecordRange(2, 6, 8)]


def test_a_partition_that_fits_is_one_record() -> None:
    rows, series, good = random_request(1, 100)
    series.partition[:] = 0
    grouped = group(rows, series, good)
    whole = ranges_by_partition(grouped)
    exact = encoded_size(len(grouped.pack_id), len(grouped.ts_ms), shared_ts=False)
    assert split(grouped, whole, exact) == whole
    assert len(split(grouped, whole, exact - 1)) == 2
