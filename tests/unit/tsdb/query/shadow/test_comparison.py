"""Each kind of difference is found and counted. Samples that one side received later are not reported."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from support.data.heads import details_of
from tsdb.client import SelectResult
from tsdb.model.details import detail_digests
from tsdb.query.shadow.comparison import (
    RECENT_MS,
    ROWS_SHOWN_MAX,
    SERIES_SHOWN_MAX,
    Column,
    ComparedAnswer,
    compare,
    rows_of,
)

AT_MS = 10_000_000
OLD_MS = AT_MS - RECENT_MS - 10_000


def column(*values: float, start_ms: int = OLD_MS) -> Column:
    return start_ms + 1000 * np.arange(len(values)), np.array(values)


def rows(*, exact: bool = True, coverage: frozenset[str] = frozenset(), **series: Column) -> ComparedAnswer:
    return ComparedAnswer({name.encode(): one for name, one in series.items()}, coverage, exact)


def test_equal_answers_are_equal_bit_for_bit() -> None:
    stale = np.uint64(0x7FF0000000000002).view(np.float64)
    one = rows(a=column(1.0, float(stale), -0.0))
    assert compare(one, rows(a=column(1.0, float(stale), -0.0)), AT_MS).result == "equal"


@pytest.mark.parametrize(
    ("shadow", "counts"),
    [
        (rows(), {"series": 1}),
        (rows(a=column(1, 2, 3), b=column(5)), {"series": 1}),
        (rows(a=column(1, 2)), {"samples": 1}),
        (rows(a=column(1, 2.5, 3)), {"values": 1}),
        (rows(a=column(1, 2, float("nan"))), {"values": 1}),
        (rows(a=column(1, 2.5)), {"samples": 1, "values": 1}),
        (rows(a=column(1, 2, 3), coverage=frozenset({"hole"})), {"coverage": 1}),
    ],
)
def test_a_difference_is_counted_by_its_kind(shadow: ComparedAnswer, counts: dict[str, int]) -> None:
    found = compare(rows(a=column(1, 2, 3)), shadow, AT_MS)
    assert (found.counts, found.result) == (counts, "different")


def test_signs_of_zero_and_payloads_of_nan_are_values_of_a_select() -> None:
    quiet, stale = (float(np.uint64(bits).view(np.float64)) for bits in (0x7FF8000000000001, 0x7FF0000000000002))
    found = compare(rows(a=column(0.0, quiet)), rows(a=column(-0.0, stale)), AT_MS)
    assert found.counts == {"values": 2}


def test_sums_in_another_order_are_equal_results_of_a_query() -> None:
    total = 0.1 + 0.2 + 0.3
    other = 0.3 + 0.2 + 0.1
    assert total != other
    own, shadow = rows(exact=False, a=column(total, float("nan"))), rows(exact=False, a=column(other, float("nan")))
    assert compare(own, shadow, AT_MS).result == "equal"
    assert compare(own, rows(exact=False, a=column(total * (1 + 1e-9), float("nan"))), AT_MS).counts == {"values": 1}


def test_samples_of_the_last_minute_are_recent_and_no_finding() -> None:
    recent = column(4, 5, start_ms=AT_MS - 2000)
    found = compare(rows(a=column(1, 2)), rows(a=column(1, 2), b=recent), AT_MS)
    assert (found.counts, found.result) == ({}, "recent")
    assert not found.shown


def test_rows_of_both_sides_are_shown_within_bounds() -> None:
    keys = [f"s{number}".encode() for number in range(50)]
    own, shadow = (
        ComparedAnswer(dict.fromkeys(keys, column(*range(first, first + 100))), frozenset(), True) for first in (0, 1)
    )
    found = compare(own, shadow, AT_MS + 200_000)
    assert (len(found.shown), len(found.shown[0].rows)) == (SERIES_SHOWN_MAX, ROWS_SHOWN_MAX)
    assert found.shown[0].rows[0] == (OLD_MS, 0.0, 1.0)
    assert found.counts == {"values": 5000}


def detailed(*numbers: int) -> SelectResult:
    """One series whose samples have the details of these numbers (support.data.heads)."""
    values = np.ones(len(numbers))
    ts_ms = OLD_MS + 1000 * np.arange(len(numbers))
    ids, starts = np.ones(1, np.uint64), np.array([0, len(numbers)])
    return SelectResult(ids, [b"a"], starts, ts_ms, values, None, [], details=details_of(numbers, values))


@pytest.mark.parametrize("other", [(0, 1, 8, 9), (0, 1, 14, 9), (0, 3, 8, 9), (2, 1, 8, 9), (0, 0, 8, 9)])
def test_details_are_compared_with_their_samples(other: tuple[int, ...]) -> None:
    own = rows_of(detailed(0, 1, 8, 9))
    found = compare(own, rows_of(detailed(*other)), AT_MS)
    same = other == (0, 1, 8, 9)
    assert found.result == ("equal" if same else "different")
    assert found.counts == ({} if same else {"values": 1})


def test_the_digest_of_a_histogram_depends_on_each_of_its_parts() -> None:
    details = details_of((8,), np.ones(1))
    assert details is not None
    columns = details.histograms
    assert columns is not None
    changes: list[dict[str, Any]] = [
        {"buckets": columns.buckets[::-1].copy()},
        {"counts": columns.counts + 1},
        {"zero_counts": columns.zero_counts + 1},
        {"hints": columns.hints ^ 1},
        {"is_integer": ~columns.is_integer},
        {"shapes": tuple(replace(shape, schema=shape.schema - (not shape.has_bounds)) for shape in columns.shapes)},
    ]
    digests = {int(detail_digests(details, 1)[0])}
    for change in changes:
        other = replace(details, histograms=replace(columns, **change))
        digests.add(int(detail_digests(other, 1)[0]))
    assert len(digests) == 1 + len(changes)
