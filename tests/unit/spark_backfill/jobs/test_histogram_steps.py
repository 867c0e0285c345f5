"""Derived series of native histograms against plain loops over the samples."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_backfill.jobs.downsample.deriving import NOTHING_BEFORE, Before, derived_fragment, last_samples
from support.examples import examples
from support.oracles.derived_twin import LastValues, derived_twin
from support.oracles.fragment_twin import bits
from support.oracles.histogram_twin import (
    Hist,
    Key,
    Last,
    Sample,
    Steps,
    detailed_fragment,
    histogram_steps_twin,
    same,
    samples_in,
)
from tsdb.codec.chunk.chunk import decode_chunk, encode_chunk
from tsdb.codec.columns.details import SHAPE_BUCKETS_MAX
from tsdb.model.histograms import CUSTOM_BOUNDS, GAUGE, NOT_RESET, RESET, UNKNOWN
from tsdb.model.resolution import AGGREGATES
from tsdb.model.stale import STALE
from tsdb.promql.evaluate.native.histograms import from_columns

RESOLUTION_MS = 10
WINDOW_MS = 60
IDS = {source: np.arange(10 * source, 10 * source + len(AGGREGATES), dtype=np.uint64) for source in range(1, 5)}

counts = st.dictionaries(st.integers(-2, 3), st.integers(0, 4).map(float), max_size=4)
starts = st.sampled_from([0, 0, 0, 5, 12, 20, 33])
hints = st.sampled_from([UNKNOWN, UNKNOWN, UNKNOWN, RESET, NOT_RESET, GAUGE])
numbers = st.integers(0, 3).map(float)
exponential = st.builds(Hist, st.integers(0, 1), counts, numbers, numbers, hints, starts)
custom = st.builds(
    lambda found, total, hint: Hist(CUSTOM_BOUNDS, found, 0.0, total, hint, bounds=(1.0, 2.0)),
    st.dictionaries(st.integers(0, 2), st.integers(0, 4).map(float), max_size=3),
    numbers,
    hints,
)
stale = st.sampled_from([Hist(is_stale=True), STALE])
sample = st.one_of(exponential, exponential, exponential, custom, st.sampled_from([0.0, 2.5, -1.0]), stale)
times = st.tuples(st.integers(1, 4), st.integers(0, 59))
windows = st.lists(st.dictionaries(times, sample, min_size=1, max_size=30), min_size=1, max_size=3)


def derived(samples: Mapping[Key, Sample], before: Before = NOTHING_BEFORE) -> Steps:
    """Derived samples as a reader of their chunks finds them."""
    found = derived_fragment(detailed_fragment(samples), RESOLUTION_MS, before, IDS, 9, 7)
    parts = [decode_chunk(part) for part in encode_chunk(found, window_ms=WINDOW_MS)]
    assert all((part.order == 7).all() and part.pack_id == 9 for part in parts)
    return {
        (AGGREGATES[series % 10], series // 10, ts_ms): value
        for part in parts
        for (series, ts_ms), value in samples_in(part).items()
    }


def assert_same(found: Steps, want: Steps) -> None:
    assert found.keys() == want.keys()
    wrong = [key for key in want if not same(found[key], want[key])]
    assert not wrong, f"{wrong[0]}: {found[wrong[0]]}, wanted {want[wrong[0]]}"


@given(windows)
@settings(max_examples=examples(200))
def test_steps_of_histograms_equal_those_of_a_loop(several: list[dict[Key, Sample]]) -> None:
    last: Last = {}
    before = NOTHING_BEFORE
    for samples in several:
        want = histogram_steps_twin(samples, last, RESOLUTION_MS)
        of_histograms = {key[1:] for key in want}
        found = derived(samples, before)
        assert {key[1:] for key in found} == {(series, ts_ms // 10 * 10) for series, ts_ms in samples}
        assert_same({key: value for key, value in found.items() if key[1:] in of_histograms}, want)
        before = last_samples(detailed_fragment(samples), before)


@given(windows)
@settings(max_examples=examples(100))
def test_steps_of_floats_are_those_of_the_floats_alone(several: list[dict[Key, Sample]]) -> None:
    last: LastValues = {}
    before = NOTHING_BEFORE
    markers_apart = [
        {key: value for key, value in samples.items() if isinstance(value, Hist) or bits(value) != bits(STALE)}
        for samples in several
    ]
    for kept in filter(None, markers_apart):
        of_histograms = {key[1:] for key in histogram_steps_twin(kept, {}, RESOLUTION_MS)}
        floats = {key: value for key, value in kept.items() if not isinstance(value, Hist)}
        of_floats = {key: value for key, value in floats.items() if (key[0], key[1] // 10 * 10) not in of_histograms}
        want = derived_twin(of_floats, dict(last), RESOLUTION_MS)
        found = derived(kept, before)
        assert {key: found[key] for key in found if key[1:] not in of_histograms} == want
        before = last_samples(detailed_fragment(kept), before)
        derived_twin(floats, last, RESOLUTION_MS)


def counter(count: float, hint: int = UNKNOWN, start_ms: int = 0) -> Hist:
    return Hist(0, {1: count}, sum=count, hint=hint, start_ms=start_ms)


def test_a_reset_inside_a_step_stays_visible_in_its_last_sample() -> None:
    """The count after the reset is above that of the step before, so that only the hint shows it."""
    found = derived({(1, 1): counter(100.0), (1, 11): counter(5.0), (1, 15): counter(110.0), (1, 21): counter(111.0)})
    lasts = [found["last", 1, step] for step in (0, 10, 20)]
    assert [last.hint for last in lasts if isinstance(last, Hist)] == [UNKNOWN, RESET, UNKNOWN]
    details = detailed_fragment({(1, step): last for step, last in zip((0, 10, 20), lasts, strict=True)}).details
    assert details is not None
    assert details.histograms is not None
    resets = from_columns(details.histograms).are_resets(np.array([1, 2]), np.array([0, 1]))
    assert resets.tolist() == [True, False]
    grown = [found["increase", 1, step] for step in (0, 10, 20)]
    assert [one.counts.get(1, 0.0) for one in grown if isinstance(one, Hist)] == [0.0, 110.0, 1.0]


def test_a_reset_that_only_the_start_timestamp_shows_stays_visible() -> None:
    found = derived({(1, 1): counter(3.0, start_ms=1), (1, 12): counter(4.0, start_ms=11)})
    last = found["last", 1, 10]
    assert isinstance(last, Hist)
    assert (last.hint, last.start_ms) == (RESET, 9)
    grown = found["increase", 1, 10]
    assert isinstance(grown, Hist)
    assert grown.counts == {1: 4.0}


def test_a_counter_that_starts_in_a_step_counts_from_zero() -> None:
    found = derived({(1, 15): counter(4.0, start_ms=12)})
    grown = found["increase", 1, 10]
    assert isinstance(grown, Hist)
    assert grown.counts == {1: 4.0}


def test_a_gauge_has_the_sum_of_its_histograms_and_their_number() -> None:
    found = derived({(1, at): counter(float(at), hint=GAUGE) for at in (11, 13, 14)})
    total = found["sum", 1, 10]
    assert isinstance(total, Hist)
    assert (total.counts, total.hint, found["count", 1, 10]) == ({1: 38.0}, GAUGE, 3.0)
    assert ("increase", 1, 10) not in found
    assert ("min", 1, 10) not in found


@pytest.mark.parametrize("sides", [2, 5])
def test_a_sum_of_more_buckets_than_can_be_stored_has_a_lower_resolution(sides: int) -> None:
    width = SHAPE_BUCKETS_MAX
    wide = {
        (1, 10 + side): Hist(8, dict.fromkeys(range(side * width, (side + 1) * width), 1.0), hint=GAUGE)
        for side in range(sides)
    }
    total = derived(wide)["sum", 1, 10]
    assert isinstance(total, Hist)
    assert total.count == sides * width
    assert total.schema < 8
    assert len(total.counts) <= SHAPE_BUCKETS_MAX
