"""Details of samples for tests: histograms of many kinds, start timestamps, and fragments that have both."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from support.data.chunk_cases import MINUTE_MS, START_MS, fragment
from support.data.column_cases import STALE
from tsdb.codec.chunk.chunk import Fragment
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.histograms import CUSTOM_BOUNDS, HistogramColumns, HistogramShape

WIDE = HistogramShape(3, 2.0**-128, ((-20, 6), (2, 4)), ((5, 2),))
GROWN = HistogramShape(3, 2.0**-128, ((-20, 6), (2, 5)), ((5, 2),))
BOUNDS = HistogramShape(CUSTOM_BOUNDS, positive=((0, 4),), bounds=(0.1, 0.5, 2.5))
COARSE = HistogramShape(-4, 0.001, ((-(2**31) + 1, 1), (2**32 - 4, 1)))
EMPTY = HistogramShape(0)
SHAPES = (WIDE, GROWN, BOUNDS, COARSE, EMPTY)


def histograms(shape_of: list[int], seed: int, *, is_integer: bool = True) -> HistogramColumns:
    """Histograms of SHAPES whose counts grow. One whose shape is EMPTY is a stale marker."""
    rng = np.random.Generator(np.random.PCG64(seed))
    sizes = np.array([len(SHAPES[shape].indexes) for shape in shape_of], np.int64)
    starts = np.concatenate((np.zeros(1, np.int64), np.cumsum(sizes)))
    rows = np.repeat(np.arange(len(shape_of)), sizes)
    buckets = (100 * rows + rng.integers(0, 9, len(rows))).astype(np.float64)
    if not is_integer:
        buckets += rng.random(len(rows))
    zero_counts = np.where([SHAPES[shape].has_bounds for shape in shape_of], 0.0, 3.0 * np.arange(len(shape_of)))
    counts = (np.bincount(rows, buckets, len(shape_of)) + zero_counts).astype(np.float64)
    sums = np.where([SHAPES[shape] is EMPTY for shape in shape_of], STALE, np.cumsum(rng.random(len(shape_of))))
    if is_integer and len(counts) > 5:
        sums[5], counts[5] = np.nan, counts[5] + 2
    hints = rng.integers(0, 4, len(shape_of)).astype(np.uint8)
    whole = np.full(len(shape_of), is_integer)
    number = np.array(shape_of, np.int32)
    return HistogramColumns(SHAPES, number, starts, buckets, counts, sums, zero_counts, hints, whole)


def detailed(
    of: Fragment, histogram_of: NDArray[np.int64], columns: HistogramColumns, start_ms: NDArray[np.int64] | None = None
) -> Fragment:
    """The fragment with these details. The value of a sample with a histogram becomes its sum."""
    value = of.value.copy()
    where = histogram_of >= 0
    value[where] = columns.sums[histogram_of[where]]
    details = SampleDetails(start_ms, columns, histogram_of).take(np.arange(of.samples))
    return replace(of, value=value, details=details)


def detailed_fragments() -> dict[str, Fragment]:
    """Name -> fragment with details, the same on every machine."""
    grid = START_MS + MINUTE_MS * np.arange(12)
    one = fragment([(3, grid, np.zeros(12), [9] * 12)])
    three = fragment([(i * 7, grid, np.arange(12.0), [9] * 12) for i in range(3)])
    all_of, none = np.arange(12), np.full(12, -1)
    mixed = np.full(36, -1)
    mixed[[*range(3, 12), *range(24, 36)]] = np.arange(21)
    starts = np.concatenate((np.zeros(12, np.int64), np.full(12, START_MS - 5), grid - MINUTE_MS))
    long_grid = START_MS + 15_000 * np.arange(240)
    return {
        "native": detailed(one, all_of, histograms([0] * 12, 1)),
        "native_floats": detailed(one, all_of, histograms([0] * 12, 2, is_integer=False)),
        "native_changing": detailed(one, all_of, histograms([0, 0, 1, 1, 4, 1, 1, 2, 2, 3, 0, 0], 3)),
        "native_custom": detailed(three, mixed, histograms([2] * 20 + [3], 4)),
        "native_and_starts": detailed(three, mixed, histograms([0] * 9 + [2] * 12, 5), starts),
        "starts": replace(three, details=SampleDetails(starts)),
        "one_start": replace(one, details=SampleDetails(np.where(none + all_of == 4, START_MS, 0))),
        "native_long": detailed(
            fragment([(1, long_grid, np.zeros(240), [9] * 240)]), np.arange(240), histograms([0] * 240, 6)
        ),
    }


def joined_of(parts: list[Fragment]) -> SampleDetails | None:
    """Details of the samples of all parts."""
    return joined_details([(part.samples, part.details) for part in parts])
