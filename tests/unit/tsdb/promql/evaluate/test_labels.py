"""Label sets as tables of numbers give what dictionaries give."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tsdb.model.labels import canonical_labels
from tsdb.promql.evaluate.errors import EvaluationError
from tsdb.promql.evaluate.vectors import labels as vector_labels
from tsdb.promql.evaluate.vectors.labels import (
    REMEMBERED_BYTES_MAX,
    REMEMBERED_PRODUCT_MAX,
    LabelSets,
    Pool,
    _remembered,
    are_distinct,
    distinct,
    joined,
    label_sets,
    no_labels,
    parsed,
)

NAMES = st.sampled_from(["__name__", "a", "b", "le", "zone", "ä"])
VALUES = st.sampled_from(["x", "y", "xy", "z" * 40, "é", "0"])
LONG_LABELS = [{"a": str(row) * REMEMBERED_BYTES_MAX} for row in range(2)]
MANY_SERIES = [{"a": f"{row:04d}"} for row in range(1 + REMEMBERED_PRODUCT_MAX // 600)]
VERY_MANY_SERIES = [{"a": f"{row:04d}"} for row in range(REMEMBERED_BYTES_MAX + 1)]
ROWS = st.lists(st.dictionaries(NAMES, VALUES, max_size=4), max_size=12)


@given(ROWS)
def test_parsed_labels_are_those_that_were_joined(rows: list[dict[str, str]]) -> None:
    sets = parsed(Pool(), [canonical_labels(row) for row in rows])
    assert _rows(sets) == [dict(sorted(row.items())) for row in rows]


def test_an_empty_value_is_an_absent_label() -> None:
    assert _rows(parsed(Pool(), [b"a\xff\xffb\xffx"])) == [{"b": "x"}]


@given(ROWS)
def test_a_remembered_selection_has_the_numbers_of_each_query(rows: list[dict[str, str]]) -> None:
    selection = [canonical_labels(row) for row in rows]
    for earlier in ([], ["x", "other", "xy"]):
        pool = Pool()
        pool.numbers(earlier)
        sets = parsed(pool, selection)
        assert sets.pool is pool
        assert _rows(sets) == [dict(sorted(row.items())) for row in rows]
        assert sets.is_distinct == (len(set(selection)) == len(selection))


@pytest.mark.parametrize("rows", [LONG_LABELS, MANY_SERIES, VERY_MANY_SERIES])
def test_a_large_selection_is_parsed_and_not_remembered(rows: list[dict[str, str]]) -> None:
    before = _remembered.cache_info().currsize
    assert _rows(parsed(Pool(), [canonical_labels(row) for row in rows])) == rows
    assert _remembered.cache_info().currsize == before


def test_a_remembered_selection_counts_against_the_bounds_of_each_query() -> None:
    selection = [canonical_labels({"a": "x" * 100})]
    parsed(Pool(), selection)
    with pytest.raises(EvaluationError, match="too long"):
        parsed(Pool(chars_max=99), selection)
    with pytest.raises(EvaluationError, match="pairs of series and name"):
        parsed(Pool(cells_max=0), selection)


@given(ROWS)
def test_rows_with_equal_labels_are_one_group(rows: list[dict[str, str]]) -> None:
    groups = label_sets(Pool(), rows).groups()
    for row, labels in enumerate(rows):
        assert groups.first[groups.of_row[row]] == rows.index(labels)


@given(ROWS)
def test_the_order_is_that_of_pairs_by_name(rows: list[dict[str, str]]) -> None:
    sets = label_sets(Pool(), rows)
    order = sets.order().tolist()
    pairs = [sorted(rows[row].items()) for row in order]
    assert pairs == sorted(sorted(row.items()) for row in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vector_labels, "SMALL_CELLS", -1)
        assert sets.order().tolist() == order, "many rows are ordered as few are"


@given(st.lists(st.integers(0, 9), max_size=12))
def test_groups_are_distinct_when_none_comes_twice(groups: list[int]) -> None:
    assert are_distinct(np.array(groups, np.int64)) == (len(set(groups)) == len(groups))


@given(ROWS, ROWS, st.sets(NAMES))
def test_labels_are_chosen_dropped_and_joined_as_in_dictionaries(
    first: list[dict[str, str]], second: list[dict[str, str]], names: set[str]
) -> None:
    pool = Pool()
    sets = joined(label_sets(pool, first), label_sets(pool, second))
    both = [*first, *second]
    assert _rows(sets) == [dict(sorted(row.items())) for row in both]
    assert _rows(sets.only(names)) == [{name: row[name] for name in sorted(row) if name in names} for row in both]
    assert _rows(sets.without(names)) == [
        {name: row[name] for name in sorted(row) if name not in names} for row in both
    ]


@given(ROWS, st.sets(NAMES), st.data())
def test_rows_that_are_known_to_be_distinct_are(
    rows: list[dict[str, str]], names: set[str], data: st.DataObject
) -> None:
    sets = parsed(Pool(), [canonical_labels(row) for row in rows])
    groups = label_sets(Pool(), rows).groups()
    some = np.array(sorted(data.draw(st.sets(st.sampled_from(range(len(rows)))) if rows else st.just(set()))), np.int64)
    for one in (sets, sets.without(names), sets.only(names), sets.subset(some), sets.without(names).subset(some)):
        found = _rows(one)
        is_distinct = all(row not in found[:at] for at, row in enumerate(found))
        assert is_distinct or not one.is_distinct
        assert len(one.groups()) == len({str(row) for row in found})
    assert label_sets(Pool(), rows).first_of(groups).is_distinct


def test_equal_labels_are_found_though_their_texts_differ() -> None:
    sets = parsed(Pool(), [b"b\xffx", b"a\xff\xffb\xffx"])
    assert len(sets.groups()) == 1


def test_series_of_one_metric_stay_distinct_without_its_name() -> None:
    sets = parsed(Pool(), [canonical_labels({"__name__": "x", "a": value}) for value in "yz"])
    assert sets.without(["__name__"]).is_distinct
    assert not sets.without(["a"]).is_distinct


@given(st.lists(st.integers(0, 2**40), max_size=30))
def test_distinct_numbers_are_those_of_numpy(numbers: list[int]) -> None:
    for scale in (1, 2**35):
        given_numbers = np.array(numbers, np.int64) // scale
        found, places = distinct(given_numbers)
        expected, inverse = np.unique(given_numbers, return_inverse=True)
        assert found == expected.tolist()
        assert places.tolist() == inverse.reshape(-1).tolist()


def test_a_label_that_is_set_to_nothing_is_removed() -> None:
    pool = Pool()
    sets = label_sets(pool, [{"a": "x", "b": "y"}, {"a": "z"}])
    numbers = np.array([0, pool.number("w")], np.int32)
    assert _rows(sets.with_column("a", numbers)) == [{"b": "y"}, {"a": "w"}]


def test_rows_without_labels_are_one_group() -> None:
    assert len(no_labels(Pool(), 3).groups()) == 1
    assert no_labels(Pool(), 3).order().tolist() == [0, 1, 2]


def _rows(sets: LabelSets) -> list[dict[str, str]]:
    return [sets.row(row) for row in range(len(sets))]
