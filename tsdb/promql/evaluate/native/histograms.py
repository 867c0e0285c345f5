"""Keeps the histograms of a query by columns, and computes on whole arrays of them.

Each bucket has its key (`bucket_kernels`), so that histograms of different shapes need no conversion to be added. A
block or a range refers to its histograms by their indexes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tsdb.model.arrays import csr_places, joined_ranges
from tsdb.model.histograms import (
    GAUGE,
    NOT_RESET,
    RESET,
    SCHEMA_MAX,
    UNKNOWN,
    HistogramColumns,
    HistogramShape,
)
from tsdb.promql.evaluate.native import measure_kernels as codes
from tsdb.promql.evaluate.native.bucket_kernels import (
    BOUNDS,
    COUNT,
    CUSTOM,
    HINT,
    ORIGIN,
    SCHEMA,
    SUM,
    THRESHOLD,
)
from tsdb.promql.evaluate.native.combine_kernels import combine_kernel
from tsdb.promql.evaluate.native.measure_kernels import compare_kernel, measure_kernel, trim_kernel

BUCKET_BYTES = 16  # Key and count.
ROOM_MAX = 1 << 22  # Buckets that one call of the kernel may write: 64 MiB. More groups take more calls.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Bounds = tuple[tuple[float, ...], ...]


@dataclass(frozen=True, slots=True)
class NativeHistograms:
    """Histogram i has the buckets [starts[i], starts[i + 1]), ascending by their keys.

    numbers: float64 (n, 4), count, sum, count and threshold of the zero bucket. whole: int64 (n, 3), schema, index of
    the custom bounds or -1, counter-reset hint. bounds: the custom bounds, each once.
    """

    starts: Integers
    keys: Integers
    buckets: Floats
    numbers: Floats
    whole: Integers
    bounds: Bounds = ()

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return sum(part.nbytes for part in (self.starts, self.keys, self.buckets, self.numbers, self.whole))

    @property
    def counts(self) -> Floats:
        """Number of observations of each histogram."""
        return self.numbers[:, COUNT]

    @property
    def sums(self) -> Floats:
        """Sum of the observations of each histogram."""
        return self.numbers[:, SUM]

    @property
    def hints(self) -> Integers:
        """Counter-reset hint of each histogram."""
        return self.whole[:, HINT]

    @property
    def schemas(self) -> Integers:
        """Schema of each histogram."""
        return self.whole[:, SCHEMA]

    @property
    def has_bounds(self) -> NDArray[np.bool_]:
        """Whether a histogram has custom bounds."""
        found: NDArray[np.bool_] = self.whole[:, SCHEMA] == CUSTOM
        return found

    def take(self, rows: Integers) -> NativeHistograms:
        """The histograms with these indexes."""
        places, starts = csr_places(self.starts, rows)
        return NativeHistograms(
            starts, self.keys[places], self.buckets[places], self.numbers[rows], self.whole[rows], self.bounds
        )

    def with_hint(self, hint: int) -> NativeHistograms:
        """The same histograms with one hint."""
        whole = self.whole.copy()
        whole[:, HINT] = hint
        return replace(self, whole=whole)

    def without_resets(self) -> NativeHistograms:
        """The same histograms without hints of counters; gauges stay gauges."""
        whole = self.whole.copy()
        whole[whole[:, HINT] != GAUGE, HINT] = UNKNOWN
        return replace(self, whole=whole)

    def with_resets(self, order: Integers, has_before: NDArray[np.bool_]) -> NativeHistograms:
        """The same histograms, with hints of resets where they have none. order: the histograms in the order of their
        samples. has_before: bool, whether the one before in this order is of the same series."""
        places = np.flatnonzero(has_before & (self.whole[order, HINT] == UNKNOWN))
        now = order[places]
        whole = self.whole.copy()
        whole[now, HINT] = np.where(self.are_resets(now, order[places - 1]), RESET, NOT_RESET)
        return replace(self, whole=whole)

    def without_buckets(self) -> NativeHistograms:
        """The same histograms with their counts, sums, schemas and hints alone."""
        count, whole = len(self), self.whole.copy()
        whole[:, BOUNDS] = np.where(self.has_bounds, 0, -1)
        numbers = self.numbers.copy()
        numbers[:, SUM + 1 :] = 0.0
        none = np.zeros(count + 1, np.int64)
        return NativeHistograms(none, np.zeros(0, np.int64), np.zeros(0), numbers, whole, ((),))

    def times(self, factors: Floats) -> NativeHistograms:
        """Each histogram times its factor, without empty buckets. A negative factor makes a gauge."""
        return self._scaled(factors, np.multiply)._compact()

    def over(self, divisors: Floats) -> NativeHistograms:
        """Each histogram over its divisor, without empty buckets. Over 0 there are no buckets at all."""
        scaled = self._scaled(divisors, np.divide)
        scaled.buckets[np.repeat(divisors == 0, np.diff(self.starts))] = 0.0
        return scaled._compact()

    def _scaled(self, by: Floats, operation: Callable[[Floats, Floats], Floats]) -> NativeHistograms:
        numbers, whole = self.numbers.copy(), self.whole.copy()
        numbers[:, :THRESHOLD] = operation(numbers[:, :THRESHOLD], by[:, np.newaxis])
        whole[by < 0, HINT] = GAUGE
        buckets = operation(self.buckets, np.repeat(by, np.diff(self.starts)))
        return replace(self, buckets=buckets, numbers=numbers, whole=whole)

    def _compact(self) -> NativeHistograms:
        filled = self.buckets != 0
        if filled.all():
            return self
        starts = np.concatenate(([0], np.cumsum(filled)))[self.starts]
        return replace(self, starts=starts, keys=self.keys[filled], buckets=self.buckets[filled])

    def trimmed(self, limits: Floats, *, is_upper: bool) -> NativeHistograms:
        """Each histogram without its observations above a limit, or below it."""
        found = replace(self, buckets=self.buckets.copy(), numbers=self.numbers.copy())
        trim_kernel(*found.arrays(), limits, is_upper)
        return found._compact()

    def quantiles(self, quantiles: Floats) -> tuple[Floats, NDArray[np.uint8]]:
        """A quantile of each histogram, and flags of those with observations of NaN (`measure_kernels`)."""
        return self._measured(codes.QUANTILE, quantiles, quantiles)

    def fractions(self, lower: Floats, upper: Floats) -> tuple[Floats, NDArray[np.uint8]]:
        """The share of the observations of each histogram between two values, and flags as of `quantiles`."""
        return self._measured(codes.FRACTION, lower, upper)

    def variances(self) -> Floats:
        """The variance of the observations of each histogram."""
        none = np.zeros(len(self))
        return self._measured(codes.VARIANCE, none, none)[0]

    def _measured(self, code: int, one: Floats, two: Floats) -> tuple[Floats, NDArray[np.uint8]]:
        out, flags = np.empty(len(self)), np.empty(len(self), np.uint8)
        measure_kernel(code, *self.arrays(), one, two, out, flags)
        return out, flags

    def are_equal(self, one: Integers, other: Integers) -> NDArray[np.bool_]:
        """Whether the histograms of each pair are equal."""
        return self._compared(codes.EQUAL, one, other)

    def are_resets(self, now: Integers, before: Integers) -> NDArray[np.bool_]:
        """Whether a counter was reset between two of its samples."""
        return self._compared(codes.RESET, now, before)

    def _compared(self, code: int, one: Integers, other: Integers) -> NDArray[np.bool_]:
        out = np.empty(len(one), np.bool_)
        compare_kernel(code, *self.arrays(), one, other, out)
        return out

    def arrays(self) -> tuple[Integers, Integers, Floats, Floats, Integers, Integers, Floats]:
        """The arguments of kernels: starts, keys, buckets, numbers, whole, and the custom bounds as CSR."""
        starts = np.cumsum([0, *map(len, self.bounds)], dtype=np.int64)
        bounds = np.array([bound for bounds in self.bounds for bound in bounds], np.float64)
        return self.starts, self.keys, self.buckets, self.numbers, self.whole, starts, bounds

    def combined(
        self,
        starts: Integers,
        members: Integers,
        weights: Floats,
        divisors: Floats | None = None,
        schema_max: Integers | None = None,
        *,
        admit: Callable[[int], None] = lambda _: None,
    ) -> CombinedHistograms:
        """The weighted sum of each group over its divisor. Group g has the members [starts[g], starts[g + 1]).

        admit: called with the bytes of all buckets before more are written; raises when they do not fit.
        """
        groups = len(starts) - 1
        bounds, targets = self._shared_bounds(starts, members)
        divisors = np.ones(groups) if divisors is None else divisors
        schema_max = np.full(groups, SCHEMA_MAX) if schema_max is None else schema_max
        arrays = replace(self, bounds=bounds).arrays()
        rooms = np.concatenate(([0], np.cumsum(np.diff(self.starts)[members])))[starts].astype(np.int64)
        sizes, flags = np.zeros(groups, np.int64), np.zeros(groups, np.int64)
        numbers, whole = np.zeros((groups, 4)), np.zeros((groups, 3), np.int64)
        keys: list[Integers] = [np.zeros(0, np.int64)]
        buckets: list[Floats] = [np.zeros(0)]
        done = 0  # Buckets of the groups before.
        for part in parts_of(rooms, ROOM_MAX):
            admit(BUCKET_BYTES * (done + int(rooms[part.stop] - rooms[part.start])))
            room = rooms[part.start : part.stop + 1] - rooms[part.start]
            out_keys, out_buckets = np.empty(room[-1], np.int64), np.empty(room[-1])
            combine_kernel(
                *arrays, starts[part.start : part.stop + 1], members, weights, targets[part], schema_max[part],
                divisors[part], room, out_keys, out_buckets, sizes[part], numbers[part], whole[part], flags[part],
            )  # fmt: skip
            written = np.maximum(sizes[part], 0)
            places = joined_ranges(room[:-1], written)
            keys.append(out_keys[places])
            buckets.append(out_buckets[places])
            done += len(places)
        failed = np.where(sizes < 0, -1 - sizes, -1)
        out_starts = np.concatenate(([0], np.cumsum(np.maximum(sizes, 0)))).astype(np.int64)
        found = NativeHistograms(out_starts, np.concatenate(keys), np.concatenate(buckets), numbers, whole, bounds)
        return CombinedHistograms(found, flags, failed)

    def _shared_bounds(self, starts: Integers, members: Integers) -> tuple[Bounds, Integers]:
        """All bounds, and the index of those that the members of each group share."""
        targets = np.full(len(starts) - 1, -1, np.int64)
        if not self.bounds or not len(members):
            return self.bounds, targets
        group_of = np.repeat(np.arange(len(targets)), np.diff(starts))
        of_member = self.whole[members, BOUNDS]
        pairs = np.unique(np.stack((group_of, of_member))[:, of_member >= 0], axis=1)
        known = {bounds: index for index, bounds in enumerate(self.bounds)}
        targets[pairs[0]] = pairs[1]
        several = np.flatnonzero(np.bincount(pairs[0], minlength=len(targets)) > 1)
        shared: dict[tuple[int, ...], int] = {}
        for group in several.tolist():
            first, last = np.searchsorted(pairs[0], (group, group + 1))
            indexes = tuple(pairs[1, first:last].tolist())
            if indexes not in shared:
                common = reduce(_intersection, (self.bounds[index] for index in indexes))
                shared[indexes] = known.setdefault(common, len(known))
            targets[group] = shared[indexes]
        return tuple(known), targets


def _intersection(one: tuple[float, ...], other: tuple[float, ...]) -> tuple[float, ...]:
    among = set(other)
    return tuple(bound for bound in one if bound in among)


def parts_of(ends: Integers, size_max: int) -> Iterator[slice]:
    """Groups in succession that have at most `size_max` elements together, or a single group. Group g has the elements
    [ends[g], ends[g + 1])."""
    first, groups = 0, len(ends) - 1
    while first < groups:
        end = int(np.searchsorted(ends, ends[first] + size_max, side="right")) - 1
        end = min(max(end, first + 1), groups)
        yield slice(first, end)
        first = end


@dataclass(frozen=True, slots=True)
class CombinedHistograms:
    """histograms: one for each group. flags: int64, bits of `combine_kernels`. failed: int64, the place in the group of
    the first member that does not fit, or -1; such a group has no result."""

    histograms: NativeHistograms
    flags: Integers
    failed: Integers


def joined_combined(parts: Sequence[CombinedHistograms]) -> CombinedHistograms:
    """The groups of all parts, one part after another. There is at least one."""
    return CombinedHistograms(
        joined_natives([part.histograms for part in parts]),
        np.concatenate([part.flags for part in parts]),
        np.concatenate([part.failed for part in parts]),
    )


class PendingHistograms:
    """Histograms that are computed when they are read. A sum over many series reads a part of them at a time, because
    all together may take more memory than the samples. Used by one query; several threads may take parts.

    held: bytes of what they are computed from. make: the histograms with these indexes, in this order; it calls its
    second argument with the bytes of all of them before they are computed. admit: raises when they do not fit.
    """

    __slots__ = ("_admit", "_count", "_held", "_make", "_whole")

    def __init__(
        self,
        count: int,
        held: int,
        make: Callable[[Integers, Callable[[int], None]], NativeHistograms],
        admit: Callable[[int], None],
    ) -> None:
        self._count = count
        self._held = held
        self._make = make
        self._admit = admit
        self._whole: NativeHistograms | None = None

    @property
    def nbytes(self) -> int:
        """Bytes in memory for them."""
        return self._held if self._whole is None else self._held + self._whole.nbytes

    def part(self, rows: Integers) -> NativeHistograms:
        """The histograms with these indexes, few enough that their memory counts as that of a calculation."""
        return self._make(rows, lambda size: None) if self._whole is None else self._whole.take(rows)

    def whole(self) -> NativeHistograms:
        """All histograms, computed by the first call."""
        if self._whole is None:
            self._whole = self._make(np.arange(self._count), self._admit)
        return self._whole


@dataclass(frozen=True, slots=True)
class HistogramCells:
    """The histograms of a block or of samples. of: int64 with the shape of the values, the index of the histogram, -1
    for a float."""

    source: NativeHistograms | PendingHistograms
    of: Integers

    @property
    def histograms(self) -> NativeHistograms:
        """All histograms to which `of` refers."""
        return self.source.whole() if isinstance(self.source, PendingHistograms) else self.source

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays."""
        return self.source.nbytes + self.of.nbytes


def from_columns(columns: HistogramColumns) -> NativeHistograms:
    """The histograms of stored columns, in their order. Counts are shared where no histogram has negative buckets."""
    whole = np.empty((len(columns), 3), np.int64)
    whole[:, HINT] = columns.hints
    known: dict[tuple[float, ...], int] = {}
    used = np.unique(columns.shape_of)
    shapes = [columns.shapes[number] for number in used.tolist()]
    numbers = np.zeros(len(columns.shapes), np.int64)
    numbers[used] = np.arange(len(used))
    shape_of = numbers[columns.shape_of]
    schemas = np.array([shape.schema for shape in shapes], np.int64)
    bounds = np.array(
        [known.setdefault(shape.bounds, len(known)) if shape.has_bounds else -1 for shape in shapes], np.int64
    )
    thresholds = np.array([shape.zero_threshold for shape in shapes])
    whole[:, SCHEMA], whole[:, BOUNDS] = schemas[shape_of], bounds[shape_of]
    # Stored: the positive buckets and then the negative ones, both from zero on.
    orders = [_order(shape) for shape in shapes]
    keys, buckets = _of_shapes([_keys(*pair) for pair in zip(shapes, orders, strict=True)], shape_of), columns.buckets
    if any(shape.negative_buckets for shape in shapes):
        buckets = buckets[np.repeat(columns.starts[:-1], np.diff(columns.starts)) + _of_shapes(orders, shape_of)]
    found = np.column_stack((columns.counts, columns.sums, columns.zero_counts, thresholds[shape_of]))
    return NativeHistograms(columns.starts, keys, buckets, found, whole, tuple(known))


def _order(shape: HistogramShape) -> Integers:
    """The stored place of each bucket, ascending by the bounds of the buckets."""
    positive = shape.positive_buckets
    return np.concatenate((np.arange(len(shape.indexes) - 1, positive - 1, -1), np.arange(positive)))


def _keys(shape: HistogramShape, order: Integers) -> Integers:
    keys = shape.indexes[order] + ORIGIN
    keys[: shape.negative_buckets] *= -1
    return keys


def _of_shapes(numbers: Sequence[Integers], shape_of: Integers) -> Integers:
    """The numbers of the shape of each histogram, one histogram after another."""
    if len(numbers) == 1:
        return np.tile(numbers[0], len(shape_of))
    sizes = np.array([len(one) for one in numbers], np.int64)
    starts = np.cumsum(sizes) - sizes
    return np.concatenate([*numbers, np.zeros(0, np.int64)])[joined_ranges(starts[shape_of], sizes[shape_of])]


def joined_natives(parts: Sequence[NativeHistograms]) -> NativeHistograms:
    """The histograms of all parts, one part after another. There is at least one."""
    if len(parts) == 1:
        return parts[0]
    known: dict[tuple[float, ...], int] = {}
    wholes: list[Integers] = []
    starts: list[Integers] = [np.zeros(1, np.int64)]
    end = 0
    for part in parts:
        new = np.array([*(known.setdefault(bounds, len(known)) for bounds in part.bounds), -1], np.int64)
        whole = part.whole.copy()
        whole[:, BOUNDS] = new[whole[:, BOUNDS]]
        wholes.append(whole)
        starts.append(part.starts[1:] + end)
        end += int(part.starts[-1])
    return NativeHistograms(
        np.concatenate(starts),
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.buckets for part in parts]),
        np.concatenate([part.numbers for part in parts]),
        np.concatenate(wholes),
        tuple(known),
    )
