"""Merging fragments: pack and window of the result, and shared arrays."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from support.data.chunk_cases import assert_same
from support.data.detail_cases import detailed_fragments
from support.oracles.fragment_twin import bits, fragment_of, samples_of
from tsdb.history.merge import merge
from tsdb.model.details import SampleDetails, joined_details, same_details


def test_a_single_fragment_is_returned_as_it_is() -> None:
    fragment = fragment_of({(1, 10): (5, bits(1.0))})
    assert merge([fragment]) is fragment


def test_a_late_sample_beats_the_base_and_an_older_one_does_not() -> None:
    base = fragment_of({(1, 10): (100, bits(1.0)), (1, 20): (100, bits(2.0))})
    late = fragment_of({(1, 10): (150, bits(7.0)), (1, 15): (150, bits(8.0)), (1, 20): (99, bits(9.0))})
    assert samples_of(merge([late, base])) == {
        (1, 10): (150, bits(7.0)),
        (1, 15): (150, bits(8.0)),
        (1, 20): (100, bits(2.0)),
    }


def test_fragments_of_several_windows_are_named_after_the_earliest() -> None:
    merged = merge([fragment_of({(1, 10): (1, 0)}, 7, 10), fragment_of({(1, 0): (1, 0)}, 7, 0)])
    assert (merged.pack_id, merged.window_start_ms) == (7, 0)
    assert merged.ts_ms.tolist() == [0, 10]


def test_nothing_in_a_fragment_is_nothing_in_the_merge() -> None:
    empty = fragment_of({})
    assert samples_of(merge([empty, fragment_of({(3, 1): (1, 0)}), empty])) == {(3, 1): (1, 0)}


def test_details_go_with_the_samples_that_win() -> None:
    given = detailed_fragments()["native_and_starts"]
    assert given.details is not None
    rows = np.arange(given.samples)
    even = replace(given, order=np.where(rows % 2, given.order - 1, given.order))
    odd = replace(given, order=np.where(rows % 2, given.order, given.order - 1))
    stale = replace(odd, value=np.where(rows % 2, given.value, 0.5), details=masked(given.details, rows % 2 == 1))
    for parts in ([even, stale], [stale, even], [stale, even, stale]):
        merged = merge(parts)
        assert_same(merged, given)
        assert same_details(merged.details, given.details)


def test_details_are_joined_across_series_and_with_fragments_without_any() -> None:
    given = detailed_fragments()["native_and_starts"]
    plain = detailed_fragments()["native_and_starts"].part(0, 1)
    other = replace(plain, series_id=plain.series_id + 1, details=None)
    merged = merge([given.part(2, 3), other, given.part(0, 1), given.part(1, 2)])
    assert merged.series_id.tolist() == [0, 1, 7, 14]
    want = joined_details([(12, plain.details), (12, None), (24, given.part(1, 3).details)])
    assert same_details(merged.details, want)


def test_of_equal_samples_the_one_with_a_histogram_stays() -> None:
    given = detailed_fragments()["native"]
    for parts in ([given, replace(given, details=None)], [replace(given, details=None), given]):
        assert same_details(merge(parts).details, given.details)


def masked(details: SampleDetails, keep: NDArray[np.bool_]) -> SampleDetails | None:
    """The same, where the samples that are not kept have no details."""
    parts = [(1, details.part(row, row + 1) if kept else None) for row, kept in enumerate(keep.tolist())]
    return joined_details(parts)
