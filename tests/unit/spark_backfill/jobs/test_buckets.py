"""Buckets of downsampling against plain loops over the samples."""

from __future__ import annotations

import math
import struct

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from spark_backfill.jobs.downsample.buckets import LastValues, buckets_of, last_values
from support.examples import examples
from support.oracles.derived_twin import Derived, derived_twin
from support.oracles.fragment_twin import bits, fragment_of
from tsdb.codec.chunk.chunk import Fragment
from tsdb.model.resolution import AGGREGATES

RESOLUTION_MS = 10

values = st.sampled_from([0.0, 1.0, 2.5, 7.0, -3.0, float("nan"), float("inf"), 0.1, 0.2])
times = st.tuples(st.integers(1, 4), st.integers(0, 59))
windows = st.lists(st.dictionaries(times, values, min_size=1, max_size=40), min_size=1, max_size=3)


def window(samples: dict[tuple[int, int], float]) -> Fragment:
    return fragment_of({key: (1, bits(value)) for key, value in samples.items()})


def derived(fragment: Fragment, last: LastValues) -> Derived:
    buckets = buckets_of(fragment, RESOLUTION_MS, last)
    series = np.repeat(buckets.series_id, np.diff(buckets.bucket_start)).tolist()
    return {
        (aggregate, one, ts_ms): value
        for aggregate in AGGREGATES
        for one, ts_ms, value in zip(series, buckets.ts_ms.tolist(), buckets.values[aggregate].tolist(), strict=True)
    }


def as_bits(found: Derived) -> dict[tuple[str, int, int], bytes]:
    return {key: b"nan" if math.isnan(value) else struct.pack("<d", value) for key, value in found.items()}


@given(windows)
@settings(max_examples=examples(150))
def test_buckets_equal_those_of_a_loop_over_the_samples(several: list[dict[tuple[int, int], float]]) -> None:
    last: LastValues = {}
    of_twin: LastValues = {}
    for samples in several:
        fragment = window(samples)
        assert as_bits(derived(fragment, last)) == as_bits(derived_twin(samples, of_twin, RESOLUTION_MS))
        last = last_values(fragment, last)
        assert last == of_twin


def test_a_reset_counts_from_zero_and_the_first_sample_of_all_counts_nothing() -> None:
    found = derived(window({(1, 0): 5.0, (1, 5): 8.0, (1, 12): 2.0, (1, 15): 4.0}), {})
    assert (found["increase", 1, 0], found["increase", 1, 10]) == (3.0, 4.0)
    carried = derived(window({(1, 0): 5.0}), {1: 4.5})
    assert carried["increase", 1, 0] == 0.5


def test_empty_buckets_are_left_out() -> None:
    found = derived(window({(1, 0): 5.0, (1, 55): 8.0}), {})
    assert {ts_ms for _, _, ts_ms in found} == {0, 50}
