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
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from spark_backfill.source.columns import columns_of, sample_schema
from spark_backfill.source.filters import Narrowing, push
from spark_backfill.source.options import Span
from tsdb.model.selector import Matcher, MatchType

COLUMNS = columns_of(sample_schema(["job"]))
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def at(ms: float) -> datetime:
    return EPOCH + timedelta(microseconds=ms * 1000)


@pytest.mark.parametrize(
    ("filter_", "span"),
    [
        (GreaterThanOrEqual(("ts",), at(5)), Span(5, None)),
        (GreaterThanOrEqual(("ts",), at(4.5)), Span(5, None)),
        (GreaterThan(("ts",), at(5)), Span(6, None)),
        (GreaterThan(("ts",), at(4.5)), Span(5, None)),
        (LessThan(("ts",), at(5)), Span(None, 5)),
        (LessThan(("ts",), at(4.5)), Span(None, 5)),
        (LessThanOrEqual(("ts",), at(5)), Span(None, 6)),
        (LessThanOrEqual(("ts",), at(4.5)), Span(None, 5)),
        (EqualTo(("ts",), at(5)), Span(5, 6)),
        (EqualTo(("ts",), at(-4.5)), Span(-4, -4)),
    ],
)
def test_bounds_of_time(filter_: Filter, span: Span) -> None:
    pushed = push([filter_], COLUMNS)
    assert (pushed.narrowing.span, pushed.left) == (span, [])


def test_ids_and_labels_are_taken_and_meet() -> None:
    pushed = push(
        [In(("series_id",), (-1, 2, 3)), EqualTo(("series_id",), -1), EqualTo(("pack_id",), 7), EqualTo(("job",), "a")],
        COLUMNS,
    )
    job = Matcher(MatchType.EQUAL, "job", "a")
    assert pushed.narrowing == Narrowing(Span(), (job,), frozenset({(1 << 64) - 1}), frozenset({7}))


def test_a_label_that_must_equal_a_text_is_not_null() -> None:
    pushed = push([IsNotNull(("job",)), EqualTo(("job",), "api")], COLUMNS)
    assert pushed.left == []
    assert pushed.narrowing.matchers == (Matcher(MatchType.EQUAL, "job", "api"),)
    alone = IsNotNull(("job",))
    assert push([alone, EqualTo(("job",), "")], COLUMNS).left == [alone, EqualTo(("job",), "")]


@pytest.mark.parametrize(
    "filter_",
    [
        EqualTo(("job",), ""),
        EqualTo(("value",), 1.0),
        EqualTo(("labels", "job"), "a"),
        StringStartsWith(("job",), "a"),
        IsNotNull(("job",)),
    ],
)
def test_other_filters_are_left_to_spark(filter_: Filter) -> None:
    assert push([filter_], COLUMNS).left == [filter_]
