"""Label texts become series, or are refused with a reason."""

from __future__ import annotations

import pytest

from spark_backfill.jobs.imports.normal_rows import SEPARATOR, LabelTexts, PlacedSeries, Refused
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.placement import PlacementRule


@pytest.fixture
def texts() -> LabelTexts:
    return LabelTexts(PlacementRule(), 3)


def test_the_order_of_labels_does_not_matter(texts: LabelTexts) -> None:
    one, other = texts.series('{"__name__":"up","job":"j"}'), texts.series('{ "job": "j", "__name__": "up" }')
    assert one == other
    assert isinstance(one, PlacedSeries)
    assert one.series_id == series_id(canonical_labels({"__name__": "up", "job": "j"}))


def test_later_objects_go_over_those_before_and_null_is_no_label(texts: LabelTexts) -> None:
    joined = SEPARATOR.join(('{"__name__":"a","job":"j","x":null}', '{"__name__":"up"}'))
    assert texts.series(joined) == texts.series('{"__name__":"up","job":"j"}')


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no_metric_name"),
        ('{"job":"j"}', "no_metric_name"),
        ('{"__name__":""}', "no_metric_name"),
        ("{", "bad_labels"),
        ("[]", "bad_labels"),
        ("[" * 100_000, "bad_labels"),
        ('{"__name__":"up","n":1}', "bad_labels"),
        ('{"__name__":"up","n":"a","n":"b"}', "bad_labels"),
        ('{"__name__":"up","__aggr__":"a"}', "labels_reserved"),
        ('{"__name__":"up","x":"' + "a" * 5_000 + '"}', "labels_too_long"),
        ('{"__name__":"\\ud800"}', "labels_malformed"),
    ],
)
def test_labels_of_no_series_are_refused(texts: LabelTexts, text: str, reason: str) -> None:
    assert texts.series(text) == Refused(reason)
