"""Each kind of difference is found and counted. Samples that one side received later are not reported."""

from __future__ import annotations

import numpy as np
import pytest

from tsdb.query.shadow.comparison import RECENT_MS, ROWS_SHOWN_MAX, SERIES_SHOWN_MAX, Column, ComparedAnswer, compare

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
