"""Derived series: their labels, and the selectors that find them."""

from __future__ import annotations

import pytest

from tsdb.model.labels import canonical_labels
from tsdb.model.placement import PlacementRule
from tsdb.model.resolution import (
    AGGREGATES,
    RESOLUTIONS_MS,
    UNDERIVED,
    derived_labels,
    is_derived,
    source_labels,
    underived,
)
from tsdb.model.selector import Matcher, MatchType
from tsdb.selector.selectors import parse_selector

SOURCE = canonical_labels({"__name__": "up", "job": "j", "instance": "i", "Zone": "z"})


@pytest.mark.parametrize("resolution", RESOLUTIONS_MS)
@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_labels_of_a_derived_series_name_its_source(resolution: str, aggregate: str) -> None:
    derived = derived_labels(SOURCE, resolution, aggregate)
    assert derived.split(b"\xff")[::2] == sorted(derived.split(b"\xff")[::2])
    assert source_labels(derived) == (SOURCE, resolution, aggregate)
    assert is_derived(derived)


def test_a_series_that_is_not_derived_is_its_own_source() -> None:
    assert source_labels(SOURCE) == (SOURCE, "", "")
    assert not is_derived(SOURCE)
    assert not is_derived(canonical_labels({"__name__": "up", "text": "__resolution__"}))


def test_a_derived_series_travels_with_its_source_and_is_in_a_pack_of_its_resolution() -> None:
    source = PlacementRule().place(SOURCE)
    places = {
        resolution: {PlacementRule().place(derived_labels(SOURCE, resolution, one)) for one in AGGREGATES}
        for resolution in RESOLUTIONS_MS
    }
    assert all(len(found) == 1 for found in places.values())
    (five,), (hour,) = places["5m"], places["1h"]
    assert {five.placement, hour.placement} == {source.placement}
    assert len({source.pack_id, five.pack_id, hour.pack_id}) == 3


def test_selectors_that_name_no_resolution_are_for_series_that_have_none() -> None:
    plain = parse_selector('up{job="j"}')
    assert underived(plain) == (*plain, Matcher(MatchType.EQUAL, "__resolution__", ""))
    asked = parse_selector('up{__resolution__=~".+"}')
    assert underived(asked) == asked
    assert underived(()) == UNDERIVED
