"""Native histograms by columns: samples that share a shape differ in their counts alone.

A shape names the buckets: schema, zero threshold, spans, custom bounds. A sample has an index of its shape and one
count for each bucket of it, so that storage can write a shape once a run and each bucket as a column. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from tsdb.model.arrays import csr_places
from tsdb.model.errors import InvalidRequest

CUSTOM_BOUNDS = -53  # The schema of histograms whose bounds are given.
SCHEMA_MIN, SCHEMA_MAX = -4, 8  # Exponential schemas: bounds grow by the factor 2 ** (2 ** -schema).
INDEX_MIN, INDEX_MAX = -(1 << 31) + 1, (1 << 31) - 1
BUCKETS_MAX = 1 << 16  # Buckets of a shape. Storage has a column for each one.
EXACT_MAX = 2.0**53  # Integer counts up to here are exact as float64.

UNKNOWN, RESET, NOT_RESET, GAUGE = range(4)  # Counter-reset hints, as in Prometheus's protocols.
ResetHint = Literal["unknown", "reset", "not_reset", "gauge"]
HINT_NAMES: tuple[ResetHint, ...] = ("unknown", "reset", "not_reset", "gauge")  # The index is the hint.

Span = tuple[int, int]
"""(offset, length): `length` buckets in succession, `offset` buckets after the end of the span before it. The offset of
the first span is the index of its first bucket."""

# Problems of the counts of a sample. The index is the code of `count_problems`, the text a reason of a refusal.
PROBLEMS = (
    "",
    "histogram_negative_bucket_count",
    "histogram_negative_count",
    "histogram_count_mismatch",
    "histogram_count_not_big_enough",
    "histogram_custom_buckets_zero_count",
    "histogram_count_inexact",
    "histogram_unknown_hint",
)
_OK, _NEGATIVE_BUCKET, _NEGATIVE_COUNT, _MISMATCH, _NOT_BIG_ENOUGH, _CUSTOM_ZERO, _INEXACT, _HINT = range(len(PROBLEMS))


# Reasons of shapes that InvalidHistogram refuses, and of columns whose parts do not fit together.
SHAPE_REASONS = (
    "histogram_invalid_schema",
    "histogram_too_many_buckets",
    "histogram_exponential_custom_bounds",
    "histogram_custom_bounds_nan",
    "histogram_custom_bounds_invalid",
    "histogram_custom_bounds_infinite",
    "histogram_custom_bounds_few",
    "histogram_custom_buckets_zero_threshold",
    "histogram_custom_buckets_negative",
    "histogram_span_negative_offset",
    "histogram_span_negative_length",
    "histogram_span_out_of_range",
    "histogram_spans_mismatch",
)


class InvalidHistogram(InvalidRequest):
    """The buckets of a histogram have no meaning."""

    default_reason = "invalid_histogram"


@dataclass(frozen=True)
class HistogramShape:
    """The buckets of a histogram. Bucket i of an exponential schema ends at 2 ** (i * 2 ** -schema), that end included;
    negative buckets mirror positive ones. With custom bounds, bucket i ends at bounds[i], and one more has no end.

    Raises InvalidHistogram for what Prometheus refuses too, and for more than BUCKETS_MAX buckets. The check takes no
    memory for the lengths that spans claim.
    """

    schema: int
    zero_threshold: float = 0.0
    positive: tuple[Span, ...] = ()
    negative: tuple[Span, ...] = ()
    bounds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.has_bounds and not SCHEMA_MIN <= self.schema <= SCHEMA_MAX:
            _refuse(
                f"schema {self.schema}, must be {SCHEMA_MIN} to {SCHEMA_MAX}, or {CUSTOM_BOUNDS} for custom bounds",
                "histogram_invalid_schema",
            )
        for side, spans in (("positive", self.positive), ("negative", self.negative)):
            _check_spans(side, spans)
        if max(self.buckets, len(self.bounds)) > BUCKETS_MAX:
            _refuse(f"{self.buckets} buckets, the limit is {BUCKETS_MAX}", "histogram_too_many_buckets")
        if self.has_bounds:
            self._check_bounds()
        elif self.bounds:
            _refuse("custom bounds with an exponential schema", "histogram_exponential_custom_bounds")

    def _check_bounds(self) -> None:
        if any(map(math.isnan, self.bounds)):
            _refuse("a custom bound is NaN", "histogram_custom_bounds_nan")
        if any(one >= other for one, other in zip(self.bounds, self.bounds[1:], strict=False)):
            _refuse("custom bounds must ascend", "histogram_custom_bounds_invalid")
        if self.bounds and self.bounds[-1] == math.inf:
            _refuse("the last custom bound must be finite: +Inf is implied", "histogram_custom_bounds_infinite")
        if self.zero_threshold != 0:
            _refuse("custom bounds allow no zero threshold", "histogram_custom_buckets_zero_threshold")
        if self.negative:
            _refuse("custom bounds allow no negative buckets", "histogram_custom_buckets_negative")
        if self.positive and self.positive[0][0] < 0:
            _refuse(f"a span has offset {self.positive[0][0]}", "histogram_span_negative_offset")
        end = sum(offset + length for offset, length in self.positive)
        if end > len(self.bounds) + 1:
            _refuse(f"{len(self.bounds)} custom bounds are too few for {end} buckets", "histogram_custom_bounds_few")

    def __hash__(self) -> int:
        return self._hash  # Cached: shapes are keys, and the hash of their spans takes microseconds.

    @cached_property
    def _hash(self) -> int:
        return hash((self.schema, self.zero_threshold, self.positive, self.negative, self.bounds))

    @property
    def has_bounds(self) -> bool:
        """Whether its bounds are custom ones."""
        return self.schema == CUSTOM_BOUNDS

    @cached_property
    def positive_buckets(self) -> int:
        """Number of positive buckets."""
        return sum(length for _, length in self.positive)

    @cached_property
    def negative_buckets(self) -> int:
        """Number of negative buckets."""
        return sum(length for _, length in self.negative)

    @property
    def has_short_offsets(self) -> bool:
        """Whether the offsets of all spans have 32 bits, as in Prometheus's protocols."""
        return all(offset <= INDEX_MAX for spans in (self.positive, self.negative) for offset, _ in spans)

    @property
    def buckets(self) -> int:
        """Number of buckets of both sides, without the memory of their indexes."""
        return self.positive_buckets + self.negative_buckets

    @cached_property
    def indexes(self) -> NDArray[np.int64]:
        """Index of each bucket: the positive ones, ascending, then the negative ones, ascending."""
        return np.concatenate((_indexes(self.positive), _indexes(self.negative)))


def _refuse(problem: str, reason: str) -> None:
    assert reason in SHAPE_REASONS, f"{reason} is no reason of a shape"
    raise InvalidHistogram(f"invalid histogram: {problem}", reason=reason)


def _check_spans(side: str, spans: Sequence[Span]) -> None:
    end = 0
    for number, (offset, length) in enumerate(spans):
        if number and offset < 0:
            _refuse(f"{side} span {number + 1} has offset {offset}", "histogram_span_negative_offset")
        if length < 0:
            _refuse(f"{side} span {number + 1} has length {length}", "histogram_span_negative_length")
        end += offset
        if end < INDEX_MIN or end + length - 1 > INDEX_MAX:
            problem = f"{side} span {number + 1} reaches from bucket {end} to {end + length - 1}"
            _refuse(problem, "histogram_span_out_of_range")
        end += length


def _indexes(spans: Sequence[Span]) -> NDArray[np.int64]:
    parts: list[NDArray[np.int64]] = [np.zeros(0, np.int64)]
    at = 0
    for offset, length in spans:
        at += offset
        parts.append(np.arange(at, at + length, dtype=np.int64))
        at += length
    return np.concatenate(parts)


def narrow_spans(spans: Sequence[Span]) -> list[Span]:
    """The same buckets with offsets of 32 bits, as all protocols have them: an empty span takes the rest of a larger
    offset."""
    found: list[Span] = []
    for offset, length in spans:
        found += [(offset, length)] if offset <= INDEX_MAX else [(INDEX_MAX, 0), (offset - INDEX_MAX, length)]
    return found


def spans_of(indexes: NDArray[np.int64]) -> tuple[Span, ...]:
    """The spans of buckets with these ascending indexes."""
    if not len(indexes):
        return ()
    firsts = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(np.diff(indexes) > 1) + 1))
    lengths = np.diff(np.append(firsts, len(indexes)))
    begins = indexes[firsts]
    offsets = begins - np.concatenate((np.zeros(1, np.int64), (begins + lengths)[:-1]))
    return tuple(zip(offsets.tolist(), lengths.tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class HistogramColumns:
    """N histogram samples. Sample i has the shape shapes[shape_of[i]] and the counts buckets[starts[i]:starts[i + 1]],
    in the order of the shape's `indexes`.

    shape_of: int32 (n,). starts: int64 (n + 1,). buckets, counts, sums, zero_counts: float64; counts of buckets are
    their own, neither cumulative nor deltas. hints: uint8 (n,). is_integer: bool (n,), whether the sample was sent with
    integer counts. A stale marker is the stale NaN in `sums`.
    """

    shapes: tuple[HistogramShape, ...]
    shape_of: NDArray[np.int32]
    starts: NDArray[np.int64]
    buckets: NDArray[np.float64]
    counts: NDArray[np.float64]
    sums: NDArray[np.float64]
    zero_counts: NDArray[np.float64]
    hints: NDArray[np.uint8]
    is_integer: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.shape_of)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns."""
        parts = (self.shape_of, self.starts, self.buckets, self.counts, self.sums, self.zero_counts, self.hints)
        return sum(part.nbytes for part in parts) + self.is_integer.nbytes

    def take(self, rows: NDArray[np.int64]) -> HistogramColumns:
        """The samples with these indexes. All shapes stay. Arrays are shared where all samples are taken in order."""
        if len(rows) == len(self) and (rows == np.arange(len(rows))).all():
            return self
        buckets, starts = csr_taken(self.starts, rows, self.buckets)
        return HistogramColumns(
            self.shapes,
            self.shape_of[rows],
            starts,
            buckets,
            self.counts[rows],
            self.sums[rows],
            self.zero_counts[rows],
            self.hints[rows],
            self.is_integer[rows],
        )

    def emptied(self, rows: NDArray[np.int64]) -> HistogramColumns:
        """The same samples, of which these have no buckets and no counts, as those of a refused sample."""
        lengths = np.diff(self.starts)
        stays = np.ones(len(self), np.bool_)
        stays[rows] = False
        return HistogramColumns(
            (*self.shapes, NO_BUCKETS),
            np.where(stays, self.shape_of, len(self.shapes)).astype(np.int32),
            np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths * stays))),
            self.buckets[np.repeat(stays, lengths)],
            np.where(stays, self.counts, 0.0),
            self.sums,
            np.where(stays, self.zero_counts, 0.0),
            self.hints,
            self.is_integer,
        )


NO_BUCKETS = HistogramShape(0)
"""Stands for the shapes of refused histograms."""


def csr_taken(
    starts: NDArray[np.int64], rows: NDArray[np.int64], elements: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """(elements, starts) of these rows of a CSR array."""
    size = int(starts[1]) if len(starts) > 1 else 0
    if size and starts[0] == 0 and len(elements) == size * (len(starts) - 1) and (np.diff(starts) == size).all():
        # Rows of one length, as most histograms: 3 x as fast as by the places of all elements.
        return elements.reshape(-1, size)[rows].ravel(), np.arange(len(rows) + 1) * size
    places, found = csr_places(starts, rows)
    return elements[places], found


def no_histograms() -> HistogramColumns:
    """Columns that have no samples and no shapes."""
    none, of_bytes = np.zeros(0), np.zeros(0, np.uint8)
    return HistogramColumns(
        (), np.zeros(0, np.int32), np.zeros(1, np.int64), none, none, none, none, of_bytes, np.zeros(0, np.bool_)
    )


def one_histogram(
    shape: HistogramShape,
    buckets: NDArray[np.float64],
    *,
    count: float,
    total: float,
    zero_count: float,
    hint: int,
    is_integer: bool,
) -> HistogramColumns:
    """Columns with one sample. buckets: a count for each bucket of the shape. total: the sum of the observations."""
    return HistogramColumns(
        (shape,),
        np.zeros(1, np.int32),
        np.array([0, len(buckets)], np.int64),
        buckets,
        np.array([count], np.float64),
        np.array([total], np.float64),
        np.array([zero_count], np.float64),
        np.array([hint], np.uint8),
        np.array([is_integer], np.bool_),
    )


def joined_histograms(parts: Sequence[HistogramColumns]) -> HistogramColumns:
    """The samples of all parts, one part after another. Equal shapes become one. Arrays of a single part are shared."""
    if len(parts) == 1:
        return parts[0]
    places: dict[HistogramShape, int] = {}
    shape_of: list[NDArray[np.int32]] = [np.zeros(0, np.int32)]
    starts: list[NDArray[np.int64]] = [np.zeros(1, np.int64)]
    end = 0
    for part in parts:
        new = np.array([places.setdefault(shape, len(places)) for shape in part.shapes], np.int32)
        shape_of.append(new[part.shape_of])
        starts.append(part.starts[1:] + end)
        end += int(part.starts[-1])
    return HistogramColumns(
        tuple(places),
        np.concatenate(shape_of),
        np.concatenate(starts),
        np.concatenate([np.zeros(0), *(part.buckets for part in parts)]),
        np.concatenate([np.zeros(0), *(part.counts for part in parts)]),
        np.concatenate([np.zeros(0), *(part.sums for part in parts)]),
        np.concatenate([np.zeros(0), *(part.zero_counts for part in parts)]),
        np.concatenate([np.zeros(0, np.uint8), *(part.hints for part in parts)]),
        np.concatenate([np.zeros(0, np.bool_), *(part.is_integer for part in parts)]),
    )


def count_problems(columns: HistogramColumns) -> NDArray[np.uint8]:
    """The first problem of the counts of each sample, uint8 (n,), an index of PROBLEMS; 0: none.

    Prometheus's rules: no count is negative; integer counts sum to the count of the sample, or to less where the sum is
    NaN, because NaN lies in no bucket. Float counts need not sum. NaN counts pass, as there. Stale markers have no
    problem. Raises InvalidHistogram for columns that do not fit together.
    """
    lengths = np.diff(columns.starts)
    # A shape that claims more buckets than came must not have its indexes made.
    widths = np.array([shape.buckets for shape in columns.shapes], np.int64)
    fits = columns.starts[0] == 0 and columns.starts[-1] == len(columns.buckets)
    if not fits or (lengths != widths[columns.shape_of]).any():
        raise InvalidHistogram("invalid histogram: spans and counts differ", reason="histogram_spans_mismatch")
    sample_of = np.repeat(np.arange(len(columns)), lengths)
    found = np.zeros(len(columns), np.uint8)

    def mark(where: NDArray[np.bool_], code: int) -> None:
        found[where & (found == _OK)] = code

    negative = np.bincount(sample_of, columns.buckets < 0, len(columns)) > 0
    mark(negative | (columns.zero_counts < 0), _NEGATIVE_BUCKET)
    mark(columns.counts < 0, _NEGATIVE_COUNT)
    has_bounds = np.array([shape.has_bounds for shape in columns.shapes], np.bool_)[columns.shape_of]
    mark(has_bounds & (columns.zero_counts != 0), _CUSTOM_ZERO)
    total = np.bincount(sample_of, columns.buckets, len(columns)) + columns.zero_counts
    mark(columns.is_integer & ((columns.counts > EXACT_MAX) | (total > EXACT_MAX)), _INEXACT)
    has_nan = np.isnan(columns.sums)
    mark(columns.is_integer & has_nan & (total > columns.counts), _NOT_BIG_ENOUGH)
    mark(columns.is_integer & ~has_nan & (total != columns.counts), _MISMATCH)
    mark(columns.hints > GAUGE, _HINT)
    return found


def count_errors(columns: HistogramColumns) -> dict[int, InvalidHistogram]:
    """The refusal of each sample whose counts have a problem, by index. Raises as `count_problems`."""
    problems = count_problems(columns)
    errors = {}
    for sample in np.flatnonzero(problems).tolist():
        reason = PROBLEMS[problems[sample]]
        words = reason.removeprefix("histogram_").replace("_", " ")
        errors[sample] = InvalidHistogram(f"invalid histogram: {words}", reason=reason)
    return errors
