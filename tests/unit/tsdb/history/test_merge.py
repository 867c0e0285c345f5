"""Merging fragments: pack and window of the result, and shared arrays."""

from __future__ import annotations

from support.oracles.fragment_twin import bits, fragment_of, samples_of
from tsdb.history.merge import merge


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
