"""Details of samples: what a sample may have beyond a timestamp and a float. Pure.

Columns of samples that have none carry no details, so floats without start timestamps pay nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import xxhash
from numpy.typing import NDArray

from tsdb.model.arrays import splitmix64
from tsdb.model.histograms import HistogramColumns, joined_histograms


@dataclass(frozen=True, slots=True)
class SampleDetails:
    """Start timestamps and histograms of n samples, of which at least one has either.

    start_ms: int64 (n,), ms since epoch UTC, 0 for a sample without one; None where no sample has one. histograms:
    those of the samples that are not floats, None where all are floats. histogram_of: int64 (n,), the index of each
    sample's histogram, -1 for a float; None with `histograms`. The float value of a sample with a histogram is its sum.
    """

    start_ms: NDArray[np.int64] | None = None
    histograms: HistogramColumns | None = None
    histogram_of: NDArray[np.int64] | None = None

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        columns = (self.start_ms, self.histograms, self.histogram_of)
        return sum(column.nbytes for column in columns if column is not None)

    def take(self, rows: NDArray[np.int64]) -> SampleDetails | None:
        """Details of the samples with these indexes, None where they have none. Histograms of others do not stay."""
        start_ms = None if self.start_ms is None else self.start_ms[rows]
        if self.histograms is None or self.histogram_of is None:
            return _details(start_ms)
        of = self.histogram_of[rows]
        where = of >= 0
        return _details(start_ms, self.histograms.take(of[where]), numbered(where))

    def part(self, first: int, last: int) -> SampleDetails | None:
        """Details of the samples [first, last), None where they have none."""
        return self.take(np.arange(first, last))


def numbered(where: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The number of each place among those where it holds, -1 elsewhere: `histogram_of` of histograms in the order of
    their samples."""
    return np.where(where, np.cumsum(where) - 1, -1)


def value_columns(values: Sequence[float | HistogramColumns]) -> tuple[NDArray[np.float64], SampleDetails | None]:
    """The floats of samples with these values, and the details of those that are histograms, which are columns with one
    sample. None where all are floats."""
    parts = [value for value in values if isinstance(value, HistogramColumns)]
    floats = [float(value.sums[0]) if isinstance(value, HistogramColumns) else value for value in values]
    if not parts:
        return np.array(floats, np.float64), None
    where = np.array([isinstance(value, HistogramColumns) for value in values], np.bool_)
    return np.array(floats, np.float64), SampleDetails(None, joined_histograms(parts), numbered(where))


def joined_details(parts: Sequence[tuple[int, SampleDetails | None]]) -> SampleDetails | None:
    """Details of the samples of all parts, one part after another. A part is (number of its samples, its details).
    Arrays of a single part are shared."""
    parts = [part for part in parts if part[0]]
    if len(parts) == 1:
        return parts[0][1]
    if all(details is None for _, details in parts):
        return None
    starts: list[NDArray[np.int64]] = []
    of: list[NDArray[np.int64]] = []
    histograms: list[HistogramColumns] = []
    end = 0
    for samples, details in parts:
        start_ms = None if details is None else details.start_ms
        starts.append(np.zeros(samples, np.int64) if start_ms is None else start_ms)
        if details is None or details.histograms is None or details.histogram_of is None:
            of.append(np.full(samples, -1, np.int64))
            continue
        of.append(np.where(details.histogram_of < 0, -1, details.histogram_of + end))
        histograms.append(details.histograms)
        end += len(details.histograms)
    return _details(np.concatenate(starts), joined_histograms(histograms), np.concatenate(of))


def same_details(one: SampleDetails | None, other: SampleDetails | None) -> bool:
    """Whether the details of as many samples are equal, all floats bit for bit."""
    if one is None or other is None:
        return one is other
    starts = [part.start_ms for part in (one, other)]
    if not all(start is not None for start in starts):
        if starts[0] is not starts[1]:
            return False
    elif not np.array_equal(*starts):  # type: ignore[arg-type]
        return False
    return _same_histograms(one, other)


def _same_histograms(one: SampleDetails, other: SampleDetails) -> bool:
    if one.histogram_of is None or other.histogram_of is None or one.histograms is None or other.histograms is None:
        return one.histograms is other.histograms
    where = one.histogram_of >= 0
    if not np.array_equal(where, other.histogram_of >= 0):
        return False
    left = one.histograms.take(one.histogram_of[where])
    right = other.histograms.take(other.histogram_of[where])
    floats = ("buckets", "counts", "sums", "zero_counts")
    pairs = [(getattr(left, name).view(np.int64), getattr(right, name).view(np.int64)) for name in floats]
    pairs += [(getattr(left, name), getattr(right, name)) for name in ("starts", "hints", "is_integer")]
    if not all(np.array_equal(*pair) for pair in pairs):
        return False
    shapes = np.unique(np.stack((left.shape_of, right.shape_of), axis=1), axis=0)
    return all(left.shapes[index] == right.shapes[number] for index, number in shapes.tolist())


def detail_digests(details: SampleDetails | None, samples: int) -> NDArray[np.uint64]:
    """A number for the details of each sample, uint64 (samples,): 0 without any, equal for details that are equal bit
    for bit. Different details have different numbers but for a chance of 2 ** -64."""
    found = np.zeros(samples, np.uint64)
    if details is None:
        return found
    if details.start_ms is not None:
        found += np.where(details.start_ms == 0, np.uint64(0), splitmix64(details.start_ms.view(np.uint64)))
    if details.histograms is not None and details.histogram_of is not None:
        where = details.histogram_of >= 0
        found[where] += histogram_digests(details.histograms)[details.histogram_of[where]]
    return found


def histogram_digests(columns: HistogramColumns) -> NDArray[np.uint64]:
    """A number for each histogram, uint64 (n,), as in `detail_digests`."""
    shapes = [xxhash.xxh3_64_intdigest(repr(shape).encode()) for shape in columns.shapes]
    digest = np.array(shapes, np.uint64)[columns.shape_of]
    for numbers in (columns.counts, columns.sums, columns.zero_counts):
        digest = splitmix64(digest ^ numbers.view(np.uint64))
    kinds = (columns.hints | columns.is_integer.astype(np.uint8) << np.uint8(2)).astype(np.uint64)
    digest = splitmix64(digest ^ kinds)
    # Each count is mixed with its place, so that the sum of a sample depends on the order.
    places = np.arange(len(columns.buckets)) - np.repeat(columns.starts[:-1], np.diff(columns.starts))
    mixed = splitmix64(columns.buckets.view(np.uint64) ^ splitmix64(places.astype(np.uint64)))
    sums = np.concatenate((np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)))
    return splitmix64(digest ^ (sums[columns.starts[1:]] - sums[columns.starts[:-1]]))


def _details(
    start_ms: NDArray[np.int64] | None,
    histograms: HistogramColumns | None = None,
    histogram_of: NDArray[np.int64] | None = None,
) -> SampleDetails | None:
    """Details without the columns that say nothing, or None."""
    if start_ms is not None and not start_ms.any():
        start_ms = None
    if histograms is not None and not len(histograms):
        histograms = histogram_of = None
    return None if start_ms is None and histograms is None else SampleDetails(start_ms, histograms, histogram_of)
