from __future__ import annotations

import numpy as np
import pytest

from support.kernels import insert_ref
from tsdb.index.series_table import LOAD_MAX, SeriesIdTable
from tsdb.index.series_table_kernels import NO_REF


def insert(table: SeriesIdTable, entries: dict[int, int]) -> None:
    table.reserve(len(entries))
    for series_id, ref in entries.items():
        insert_ref(*table.arrays, table.used, np.uint64(series_id), np.uint32(ref))
    table.inserted(len(entries))


def find(table: SeriesIdTable, *ids: int) -> list[int]:
    refs: list[int] = table.find(np.array(ids, np.uint64)).tolist()
    return refs


def test_ids_at_the_ends_of_64_bits_are_ids_like_any_other() -> None:
    table = SeriesIdTable()
    assert find(table, 0, 2**64 - 1) == [NO_REF, NO_REF]
    insert(table, {0: 7, 2**64 - 1: 0, 2**63: 3})
    assert find(table, 0, 2**64 - 1, 2**63, 1) == [7, 0, 3, NO_REF]
    assert len(table) == 3


def test_ids_that_want_one_slot_are_all_found_and_removing_one_hides_no_other() -> None:
    table = SeriesIdTable()
    ids = [slot << 32 | 5 for slot in range(100)]
    insert(table, {series_id: ref for ref, series_id in enumerate(ids)})
    assert find(table, *ids) == list(range(100))
    assert table.remove(np.array(ids[::2], np.uint64)) == 50
    assert find(table, *ids) == [NO_REF if ref % 2 == 0 else ref for ref in range(100)]
    assert table.remove(np.array(ids[:1], np.uint64)) == 0


def test_a_removed_id_can_come_back_with_another_ref() -> None:
    table = SeriesIdTable()
    insert(table, {1: 1, 1025: 2})
    table.remove(np.array([1], np.uint64))
    insert(table, {1: 9})
    assert find(table, 1, 1025) == [9, 2]
    assert len(table) == 2


def test_growth_leaves_the_arrays_that_a_reader_holds_as_they_were() -> None:
    table = SeriesIdTable()
    insert(table, {series_id: series_id for series_id in range(500)})
    keys, refs = table.arrays
    before = keys.copy(), refs.copy()
    insert(table, {series_id: series_id for series_id in range(500, 50_000)})
    assert (keys == before[0]).all()
    assert (refs == before[1]).all()
    assert find(table, *range(50_000)) == list(range(50_000))


@pytest.mark.parametrize("kept", [0, 300])
def test_load_stays_bounded_when_series_come_and_go_and_so_does_the_table(kept: int) -> None:
    table = SeriesIdTable()
    insert(table, {series_id: series_id for series_id in range(kept)})
    rng = np.random.default_rng(1)
    for _ in range(200):
        ids = np.unique(rng.integers(1000, 2**63, 50, np.uint64))
        insert(table, {int(series_id): 1 for series_id in ids})
        assert table.used[0] <= LOAD_MAX * table.arrays[1].size
        assert table.remove(ids) == len(ids)
    assert table.arrays[1].size <= 2048
    assert find(table, *range(kept)) == list(range(kept))
