"""Merging fragments agrees with a dict, whatever their order, grouping or repetition."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.examples import examples
from support.oracles.fragment_twin import Samples, bits, fragment_of, merged_twin, samples_of
from tsdb.history.merge import merge

SPECIAL = [*map(bits, (0.0, -0.0, float("inf"), float("nan"), 1.5)), 0x7FF0000000000002]
series = st.sampled_from([0, 1, 2, (1 << 63) + 1, (1 << 64) - 1])
values = st.one_of(st.sampled_from(SPECIAL), st.integers(0, 2**64 - 1))
parts = st.dictionaries(st.tuples(series, st.integers(-5, 5)), st.tuples(st.integers(0, 4), values), max_size=30)
some_parts = st.lists(parts, min_size=1, max_size=7)


@pytest.mark.slow
@given(some_parts)
@settings(max_examples=examples(300))
def test_of_each_series_and_time_the_highest_order_stays_bit_for_bit(several: list[Samples]) -> None:
    assert samples_of(merge([fragment_of(part) for part in several])) == merged_twin(several)


@given(some_parts, st.randoms(use_true_random=False))
@settings(max_examples=examples(100))
def test_order_grouping_and_repetition_do_not_matter(several: list[Samples], random: object) -> None:
    fragments = [fragment_of(part) for part in several]
    shuffled = fragments + fragments[:2]
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    grouped = merge([merge(shuffled[:2]), *shuffled[1:]])
    assert samples_of(grouped) == samples_of(merge(fragments))


@pytest.mark.slow
@given(some_parts)
@settings(max_examples=examples(50))
def test_what_was_given_is_left_as_it_was(several: list[Samples]) -> None:
    fragments = [fragment_of(part) for part in several]
    merge(fragments)
    assert [samples_of(fragment) for fragment in fragments] == [dict(part) for part in several]
