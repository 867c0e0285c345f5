"""Keys of rows: signs, months, token ranges."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.cassandra.store import estimated_bytes, ring_splits
from tsdb.history.interface import ChunkRow, RowSplit, WindowRange
from tsdb.history.rows import (
    KEY_MAX,
    KEY_MIN,
    MONTH_MS,
    chunk_key_columns,
    even_splits,
    key_of,
    months_of,
    pieces_of,
    series_index_rows,
    signed,
    unsigned,
)
from tsdb.model.errors import CorruptData
from tsdb.model.time_set import DEMO, PRODUCTION


@pytest.mark.parametrize("number", [0, 1, KEY_MAX, KEY_MAX + 1, 2 * KEY_MAX + 1])
def test_ids_keep_their_bits(number: int) -> None:
    assert KEY_MIN <= signed(number) <= KEY_MAX
    assert unsigned(signed(number)) == number


def test_no_window_lies_in_two_months() -> None:
    assert MONTH_MS % PRODUCTION.window_ms == 0
    assert MONTH_MS % DEMO.window_ms == 0


@pytest.mark.parametrize(
    ("windows", "months"),
    [
        (WindowRange(0, 0), []),
        (WindowRange(5, 1), []),
        (WindowRange(0, 1), [0]),
        (WindowRange(0, MONTH_MS), [0]),
        (WindowRange(0, MONTH_MS + 1), [0, 1]),
        (WindowRange(-1, 1), [-1, 0]),
    ],
)
def test_months_are_those_with_a_window_in_the_range(windows: WindowRange, months: list[int]) -> None:
    assert list(months_of(windows)) == months


def test_a_chunk_key_is_the_same_after_the_way_through_columns() -> None:
    key = ChunkKey((1 << 64) - 1, -3, Kind.FOLDED, 1 << 62, (1 << 32) - 1)
    assert key_of(chunk_key_columns(key)) == key


@pytest.mark.parametrize("columns", [(1, 0, 5, 9, 0), (1, 0, -5, 0, 0), (1, 0, 5, 0, -1), (1, 0, 5, -1, 0)])
def test_columns_that_no_key_has_are_corrupt_data(columns: tuple[int, ...]) -> None:
    with pytest.raises(CorruptData, match="no chunk's key") as corrupt:
        key_of(columns)
    assert corrupt.value.reason == "corrupt_row"


@pytest.mark.parametrize("row", [(-1, None, 0, b"a"), (-1, 2, None, b"a"), (-1, 2, 0, None)])
def test_half_a_row_of_a_series_is_corrupt_data(row: tuple[int, int | None, int | None, bytes | None]) -> None:
    with pytest.raises(CorruptData, match="ffffffffffffffff"):
        series_index_rows([(1, 1, 1, b"whole"), row])


def test_pieces_hold_one_pack_each() -> None:
    rows = [(1, 0, 5, 0, 0, b"a"), (1, 0, 5, 0, 1, b"b"), (-1, 0, 5, 0, 0, None)]
    assert pieces_of(rows) == [
        [ChunkRow(ChunkKey(1, 0, Kind.BASE, 5, 0), b"a"), ChunkRow(ChunkKey(1, 0, Kind.BASE, 5, 1), b"b")],
        [ChunkRow(ChunkKey((1 << 64) - 1, 0, Kind.BASE, 5, 0), b"")],
    ]


@pytest.mark.parametrize("ring", [[], [0], [-5, 0, 5, KEY_MAX], [KEY_MIN + 1], list(range(0, 1 << 60, 1 << 56))])
@pytest.mark.parametrize("count", [1, 2, 7, 100])
def test_token_ranges_cover_the_ring_once_within_its_borders(ring: list[int], count: int) -> None:
    ranges = ring_splits(ring, count)
    assert_whole(ranges)
    assert len(ranges) >= count
    assert {one.through for one in ranges} >= set(ring)
    assert_whole(even_splits(count))
    assert len(even_splits(count)) == count


@pytest.mark.parametrize(
    ("estimates", "size"),
    [
        ([], 0),
        ([(str(KEY_MIN), str(KEY_MIN), 100, 7)], 700),
        # A server of half the ring, in two ranges, one of them across its ends.
        ([("0", str(1 << 62), 10, 3), (str(KEY_MAX), str(KEY_MIN + (1 << 62) - 1), 5, 4)], 100),
        ([("-5", "5", 0, 0)], 0),
    ],
)
def test_the_estimate_of_one_server_is_scaled_to_the_whole_ring(
    estimates: list[tuple[str, str, int, int]], size: int
) -> None:
    assert estimated_bytes(estimates) == size


def assert_whole(ranges: list[RowSplit]) -> None:
    assert (ranges[0].after, ranges[-1].through) == (KEY_MIN, KEY_MAX)
    assert all(one.through == two.after for one, two in pairwise(ranges))
    assert all(one.after < one.through for one in ranges)
