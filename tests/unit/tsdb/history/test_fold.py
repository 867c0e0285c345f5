"""Folds: their inputs, their covers, when they are complete, and which rows may be deleted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from support.data.chunk_cases import MINUTE_MS, START_MS, WINDOW_MS, fragment, samples_of
from support.data.detail_cases import detailed_fragments
from tsdb.codec.chunk.chunk import Fragment, decode_chunk, decode_cover, encode_chunk
from tsdb.codec.chunk.cover import COVERED_KEYS_MAX
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.history.fold import fold, fragments_of, redundant, standing, whole_covers
from tsdb.history.interface import ChunkRow
from tsdb.history.merge import merge
from tsdb.model.details import same_details
from tsdb.model.errors import CorruptData, InvalidRequest
from tsdb.model.meta import PART_BYTES_MAX

GRID = START_MS + MINUTE_MS * np.arange(60)
TICK = 5_000


def rows_of(of: Fragment, kind: Kind, order: int, part_bytes_max: int = PART_BYTES_MAX) -> list[ChunkRow]:
    parts = encode_chunk(of, window_ms=WINDOW_MS, part_bytes_max=part_bytes_max)
    return [ChunkRow(ChunkKey(7, START_MS, kind, order, at), value) for at, value in enumerate(parts)]


def base() -> list[ChunkRow]:
    return rows_of(fragment([(1, GRID, np.arange(60.0), [99] * 60), (2, GRID, np.ones(60), [99] * 60)]), Kind.BASE, 100)


def late(order: int, value: float) -> list[ChunkRow]:
    return rows_of(fragment([(2, GRID[:2], [value, value], [order, order])]), Kind.LATE, order)


def folded(rows: Sequence[ChunkRow], order: int = TICK, part_bytes_max: int = PART_BYTES_MAX) -> list[ChunkRow]:
    return fold(rows, order, window_ms=WINDOW_MS, part_bytes_max=part_bytes_max)


def covers_of(rows: Sequence[ChunkRow]) -> dict[int, set[ChunkKey]]:
    firsts = [row for row in rows if row.key.kind == Kind.FOLDED and row.key.part == 0]
    return {order: set(cover.keys) for order, cover in whole_covers([row.key for row in rows], firsts).items()}


def test_a_fold_has_the_samples_of_the_merged_rows_and_lists_their_keys() -> None:
    rows = [*base(), *late(200, 7.0), *late(300, 8.0)]
    (made,) = folded(rows)
    assert made.key == ChunkKey(7, START_MS, Kind.FOLDED, TICK, 0)
    assert samples_of([decode_chunk(made.value)]) == samples_of([merge([decode_chunk(row.value) for row in rows])])
    assert covers_of([made]) == {TICK: {row.key for row in rows}}


def test_the_order_of_rows_does_not_change_the_bytes() -> None:
    rows = [*base(), *late(200, 7.0), *late(300, 8.0)]
    assert folded(rows) == folded(rows[::-1])


def test_a_fold_of_several_parts_covers_nothing_until_every_part_is_there() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    rows = [*rows_of(fragment([(at, GRID, rng.random(60), [99] * 60) for at in range(9)]), Kind.BASE, 100)]
    made = folded([*rows, *late(200, 1.0)], part_bytes_max=1024)
    assert len(made) > 3
    assert max(len(row.value) for row in made) <= 1024
    assert covers_of(made) == {TICK: {row.key for row in [*rows, *late(200, 1.0)]}}
    for at in range(len(made)):
        assert covers_of(made[:at] + made[at + 1 :]) == {}


def test_a_fold_keeps_details_and_sees_where_they_differ() -> None:
    given = detailed_fragments()["native_and_starts"]
    rows = [*rows_of(given, Kind.BASE, 100), *late(200, 7.0)]
    made = folded(rows)
    assert made[0].value[1] == 3
    assert covers_of(made) == {TICK: {row.key for row in rows}}
    assert same_details(decode_chunk(made[0].value).details, merge([decode_chunk(row.value) for row in rows]).details)
    assert redundant(made, rows)
    plain = rows_of(replace(given, details=None), Kind.BASE, 100)
    assert redundant(made, plain)
    assert not redundant(folded(plain), rows)


def test_rows_that_no_whole_fold_covers_stand() -> None:
    covered, fresh = [*base(), *late(200, 7.0)], late(300, 8.0)
    rows = [*covered, *fresh, *folded(covered)]
    keys = {row.key for row in rows}
    covers = whole_covers(keys, [row for row in rows if row.key.kind == Kind.FOLDED])
    assert standing(keys, covers) == keys - {row.key for row in covered}
    assert fragments_of(standing(keys, covers)) == {(Kind.FOLDED, TICK), (Kind.LATE, 300)}


def test_a_fold_of_a_fold_covers_it_and_its_covered_keys() -> None:
    rows = [*base(), *late(200, 7.0)]
    both = [*rows, *folded(rows)]
    again = folded(both, TICK + 1)
    cover = decode_cover(again[0].value)
    assert cover is not None
    assert set(cover.keys) == {row.key for row in both}
    assert again[0].key not in cover.keys


def test_covered_rows_are_redundant_and_others_are_not() -> None:
    rows = [*base(), *late(200, 7.0)]
    made = folded(rows)
    assert redundant(made, rows)
    assert not redundant(made, late(300, 8.0)), "it came after"
    assert redundant(made, late(50, 8.0)), "an older one loses anyway"


def test_a_row_that_was_written_anew_with_more_in_it_is_not_redundant() -> None:
    rows = [*base(), *late(200, 7.0)]
    made = folded(rows)
    anew = ChunkRow(rows[-1].key, late(200, 7.5)[0].value)
    assert not redundant(made, [rows[0], anew])


def test_a_corrupt_row_and_one_of_another_pack_are_not_folded() -> None:
    good = base()[0]
    with pytest.raises(CorruptData):
        folded([ChunkRow(good.key, good.value[:-1])])
    moved = ChunkKey(8, START_MS, Kind.BASE, 100, 0)
    with pytest.raises(CorruptData, match="under the key of pack") as refused:
        folded([ChunkRow(moved, good.value)])
    assert refused.value.reason == "wrong_chunk"


def test_more_rows_than_a_cover_names_are_refused() -> None:
    good = late(200, 1.0)[0]
    many = [ChunkRow(ChunkKey(7, START_MS, Kind.LATE, at, 0), good.value) for at in range(COVERED_KEYS_MAX + 1)]
    with pytest.raises(InvalidRequest, match=f"covers up to {COVERED_KEYS_MAX}") as refused:
        folded(many)
    assert refused.value.reason == "fold_too_large"
