"""A filter that the source takes selects the same rows as in Spark; any other filter is left to Spark."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringContains,
    StringEndsWith,
    StringStartsWith,
)

from spark_backfill.source.columns import columns_of, sample_schema
from spark_backfill.source.filters import Narrowing, push
from spark_backfill.source.options import TimeSpan
from tsdb.model.selector import Matcher, MatchType

COLUMNS = columns_of(sample_schema(["job"]))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(ms: float) -> datetime:
    return EPOCH + timedelta(microseconds=ms * 1000)


@pytest.mark.parametrize(
    ("filter_", "span"),
    [
        (GreaterThanOrEqual(("ts",), at(5)), TimeSpan(5, None)),
        (GreaterThanOrEqual(("ts",), at(4.5)), TimeSpan(5, None)),
        (GreaterThan(("ts",), at(5)), TimeSpan(6, None)),
        (GreaterThan(("ts",), at(4.5)), TimeSpan(5, None)),
        (LessThan(("ts",), at(5)), TimeSpan(None, 5)),
        (LessThan(("ts",), at(4.5)), TimeSpan(None, 5)),
        (LessThanOrEqual(("ts",), at(5)), TimeSpan(None, 6)),
        (LessThanOrEqual(("ts",), at(4.5)), TimeSpan(None, 5)),
        (EqualTo(("ts",), at(5)), TimeSpan(5, 6)),
        (EqualTo(("ts",), at(-4.5)), TimeSpan(-4, -4)),
    ],
)
def test_bounds_of_time(filter_: Filter, span: TimeSpan) -> None:
    pushed = push([filter_], COLUMNS)
    assert (pushed.narrowing.span, pushed.left) == (span, [])


def test_ids_and_labels_are_taken_and_meet() -> None:
    pushed = push(
        [In(("series_id",), (-1, 2, 3)), EqualTo(("series_id",), -1), EqualTo(("pack_id",), 7), EqualTo(("job",), "a")],
        COLUMNS,
    )
    job = Matcher(MatchType.EQUAL, "job", "a")
    assert pushed.narrowing == Narrowing(TimeSpan(), (job,), frozenset({(1 << 64) - 1}), frozenset({7}))


PRESENT = Matcher(MatchType.NOT_EQUAL, "job", "")


@pytest.mark.parametrize(
    ("filter_", "matchers"),
    [
        (EqualTo(("job",), "api"), (Matcher(MatchType.EQUAL, "job", "api"),)),
        (In(("job",), ("a", "b.c")), (Matcher(MatchType.REGEX, "job", r"a|b\.c"),)),
        (StringStartsWith(("job",), "a+"), (Matcher(MatchType.REGEX, "job", r"a\+.*"),)),
        (StringEndsWith(("job",), "$"), (Matcher(MatchType.REGEX, "job", r".*\$"),)),
        (IsNotNull(("job",)), (PRESENT,)),
        (Not(EqualTo(("job",), "a")), (PRESENT, Matcher(MatchType.NOT_EQUAL, "job", "a"))),
    ],
)
def test_conditions_on_a_label_become_matchers(filter_: Filter, matchers: tuple[Matcher, ...]) -> None:
    pushed = push([filter_], COLUMNS)
    assert (pushed.narrowing.matchers, pushed.left) == (matchers, [])


@pytest.mark.parametrize(
    "filter_",
    [
        EqualTo(("job",), ""),
        EqualTo(("value",), 1.0),
        EqualTo(("labels", "job"), "a"),
        In(("job",), ("a", "")),
        In(("job",), ("a", None)),
        In(("job",), tuple(f"instance-{number}" for number in range(1_000))),
        Not(In(("job",), ("a",))),
        IsNull(("job",)),
        Not(EqualTo(("job",), "")),
        StringContains(("job",), "a"),
    ],
)
def test_other_filters_are_left_to_spark(filter_: Filter) -> None:
    assert push([filter_], COLUMNS).left == [filter_]
