"""Details of simulated samples: histograms of many shapes and start timestamps, and their identity in the oracle.

Series whose numbers are 3 more than a multiple of 4 (see MIXED) change between floats and histograms; every series may
have start timestamps. Their random source is separate, so the samples of a schedule are the same with and without
details.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tsdb.model.details import SampleDetails
from tsdb.model.histograms import CUSTOM_BOUNDS, HistogramColumns, HistogramShape

MIXED = 4, 3
"""Series whose number divided by the first gives the second as remainder."""

SHAPES = (
    HistogramShape(0, 0.001, ((-2, 3), (1, 2)), ((0, 1),)),
    HistogramShape(0, 0.001, ((-2, 3), (1, 3)), ((0, 1),)),  # The one before, with a new bucket.
    HistogramShape(8, 2.0**-128, ((-300, 2),)),
    HistogramShape(-4, 0.0, ((0, 1),), ((-1, 2),)),
    HistogramShape(CUSTOM_BOUNDS, positive=((0, 3),), bounds=(0.5, 1.0)),
    HistogramShape(CUSTOM_BOUNDS, positive=((0, 3),), bounds=(0.5, 2.0)),
)
EMPTY = HistogramShape(3)
"""Shape of stale markers."""

STALE_NAN = float(np.array([0x7FF0000000000002], np.int64).view(np.float64)[0])
STALE_SHARE, NAN_SHARE = 0.1, 0.1
LOW_BITS = (1 << 64) - 1


@dataclass(frozen=True)
class DetailShares:
    """worlds: share of the schedules that have details; the others are faster. In these: shares of requests with start
    timestamps, of requests with histograms, and of samples of mixed series in them that are histograms.
    """

    worlds: float = 0.15
    starts: float = 0.25
    requests: float = 0.6
    histograms: float = 0.7


Text = tuple[HistogramShape, bytes, tuple[int, ...], tuple[int, bool]]
"""A histogram: shape, buckets, bits of count, sum and zero count, hint and whether its counts are integers."""

_numbers: dict[tuple[int, Text | None], int] = {}
_counts: list[float | None] = [None]
"""Count of the histogram of each number of details."""


def is_mixed(number: int) -> bool:
    """Whether this series has histograms too."""
    return number % MIXED[0] == MIXED[1]


def drawn(
    rng: random.Random, shares: DetailShares, numbers: Sequence[int], ts_ms: Sequence[int], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], SampleDetails | None]:
    """(values, details) of samples of these series. The value of a histogram is its sum, and its counts grow with the
    value that the sample had without it; so they often fall too.
    """
    sums = values.copy()
    start_ms = np.zeros(len(ts_ms), np.int64)
    if rng.random() < shares.starts:
        start_ms[:] = [at - rng.choice([0, 1, 1_000]) if rng.random() < 0.7 else 0 for at in ts_ms]
    of = np.full(len(ts_ms), -1, np.int64)
    if rng.random() < shares.requests:
        for row, number in enumerate(numbers):
            if is_mixed(number) and rng.random() < shares.histograms:
                of[row] = row
    (rows,) = (of >= 0).nonzero()
    of[rows] = np.arange(len(rows))
    starts = start_ms if start_ms.any() else None
    if not len(rows):
        return sums, None if starts is None else SampleDetails(starts)
    columns = _histograms(rng, sums[rows].tolist())
    sums[rows] = columns.sums
    return sums, SampleDetails(starts, columns, of)


def _histograms(rng: random.Random, values: Sequence[float]) -> HistogramColumns:
    shapes, shape_of, starts = (*SHAPES, EMPTY), [], [0]
    buckets: list[float] = []
    counts, sums, zeros, hints, whole = [], [], [], [], []
    for value in values:
        requests = 0.0 if np.isnan(value) else abs(value)
        is_stale, is_integer = rng.random() < STALE_SHARE, rng.random() < 0.7
        shape = len(SHAPES) if is_stale else rng.randrange(len(SHAPES))
        own = [requests + bucket + (0.0 if is_integer else 0.25) for bucket in range(len(shapes[shape].indexes))]
        zero = 0.0 if is_stale or shapes[shape].has_bounds else requests % 3
        has_nan = not is_stale and rng.random() < NAN_SHARE
        shape_of.append(shape)
        buckets += own
        starts.append(len(buckets))
        zeros.append(zero)
        counts.append(sum(own) + zero + (2.0 if has_nan else 0.0))
        sums.append(STALE_NAN if is_stale else float("nan") if has_nan else value)
        hints.append(rng.randrange(4))
        whole.append(is_integer)
    return HistogramColumns(
        shapes,
        np.array(shape_of, np.int32),
        np.array(starts, np.int64),
        np.array(buckets, np.float64),
        np.array(counts, np.float64),
        np.array(sums, np.float64),
        np.array(zeros, np.float64),
        np.array(hints, np.uint8),
        np.array(whole, np.bool_),
    )


# Identity. The oracle knows a sample as one integer: the bits of its value, and above them the number of its details.


def identities(values: NDArray[np.float64], details: SampleDetails | None) -> list[int]:
    """An integer for each sample, which is equal for samples that are equal bit for bit, details included. Without
    details it is the bits of the value as an int64.
    """
    plain: list[int] = values.view(np.int64).tolist()
    if details is None:
        return plain
    starts = [0] * len(plain) if details.start_ms is None else details.start_ms.tolist()
    of = [-1] * len(plain) if details.histogram_of is None else details.histogram_of.tolist()
    texts = [] if details.histograms is None else _texts(details.histograms)
    return [
        bits if not start and at < 0 else _detailed(bits, start, texts[at] if at >= 0 else None)
        for bits, start, at in zip(plain, starts, of, strict=True)
    ]


def _texts(columns: HistogramColumns) -> list[Text]:
    ends = columns.starts.tolist()
    of = columns.shape_of.tolist()
    floats = (columns.counts, columns.sums, columns.zero_counts)
    rest = zip(*(column.view(np.int64).tolist() for column in floats), strict=True)
    more = zip(columns.hints.tolist(), columns.is_integer.tolist(), strict=True)
    return [
        (columns.shapes[of[at]], columns.buckets[ends[at] : ends[at + 1]].tobytes(), counted, kind)
        for at, (counted, kind) in enumerate(zip(rest, more, strict=True))
    ]


def _detailed(bits: int, start_ms: int, histogram: Text | None) -> int:
    number = _numbers.setdefault((start_ms, histogram), len(_counts))
    if number == len(_counts):
        _counts.append(None if histogram is None else float_of(histogram[2][0]))
    return (number << 64) | (bits & LOW_BITS)


def count_of(identity: int) -> float | None:
    """The count of a histogram, None for a float."""
    return _counts[identity >> 64] if identity > LOW_BITS else None


def is_histogram(identity: int) -> bool:
    """Whether the sample is a histogram."""
    return count_of(identity) is not None


@lru_cache(4096)
def float_of(identity: int) -> float:
    """The value of the sample; of a histogram its sum."""
    return float(np.array([identity & LOW_BITS], np.uint64).view(np.float64)[0])


def value_bits(identity: int) -> int:
    """The bits of the value, as an int64."""
    low = identity & LOW_BITS
    return low - (1 << 64) if low >> 63 else low
