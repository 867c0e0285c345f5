"""Times and durations as they are typed. The scripts of the page read the same table of texts."""

from __future__ import annotations

import pytest

from support.times import DURATIONS, INSTANTS, NOW_MS
from tsdb.model.errors import InvalidRequest
from tsdb.model.times import parse_duration, parse_instant


@pytest.mark.parametrize(("text", "ms"), INSTANTS.items())
def test_a_typed_time_has_one_meaning(text: str, ms: int | None) -> None:
    if ms is None:
        with pytest.raises(InvalidRequest):
            parse_instant(text, NOW_MS)
    else:
        assert parse_instant(text, NOW_MS) == ms


@pytest.mark.parametrize(("text", "ms"), DURATIONS.items())
def test_a_typed_duration_has_the_units_of_promql(text: str, ms: int | None) -> None:
    if ms is None:
        with pytest.raises(InvalidRequest) as refused:
            parse_duration(text)
        assert refused.value.reason == "bad_duration"
    else:
        assert parse_duration(text) == ms
