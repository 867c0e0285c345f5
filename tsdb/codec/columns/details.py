"""Encodes and decodes details, the start timestamps and the histograms of the samples of a chunk or a log record.

Layout: docs/formats/details.md. Pure. Samples come in groups, the series of a chunk or the one group of a record, and a
group's columns do not depend on other groups: a part of a chunk copies the columns of its series. The bytes depend on
the samples alone, so two encoders give the same ones. Bad bytes are CorruptData, never a crash or a large allocation.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns import details_kernels as kernels
from tsdb.codec.columns.columns import scratch
from tsdb.codec.columns.columns_kernels import values_bound
from tsdb.codec.columns.starts_kernels import RUN_BYTES_MAX as START_BYTES_MAX
from tsdb.model.arrays import csr_places
from tsdb.model.details import SampleDetails
from tsdb.model.errors import CorruptData
from tsdb.model.histograms import (
    CUSTOM_BOUNDS,
    EXACT_MAX,
    GAUGE,
    HistogramColumns,
    HistogramShape,
    InvalidHistogram,
    Span,
)

SHAPE_BUCKETS_MAX = 1 << 13
"""Buckets, spans of a side and custom bounds of a stored shape, each at most. The widest sample takes less than 200 kB,
so that it fits into a log record and into a part of a chunk."""


class Tag(IntEnum):
    """Kinds of sections, as docs/formats/details.md numbers them."""

    STARTS = 1
    HISTOGRAMS = 2


Section = tuple[Tag, bytes]

_GROUP_BYTES = 40  # Bound of what a group adds beside its columns, runs and shapes.
_INTEGER, _TOTAL = 4, 8  # Bits of the attributes; the hint has the lower two.
_CACHED_SHAPES = 4096
_CACHED_BUCKETS_MAX = 512  # Wider shapes are not cached, nor those of more bytes than this times two.
_WIDE = 1 << 16  # Indexes of buckets that a table has for each call.
_F64 = struct.Struct("<d")


def is_storable(shape: HistogramShape) -> bool:
    """Whether a sample of this shape can be stored: it has at most SHAPE_BUCKETS_MAX buckets, spans and bounds."""
    most = max(len(shape.positive), len(shape.negative), len(shape.bounds))
    return max(most, shape.buckets) <= SHAPE_BUCKETS_MAX


class EncodedDetails:
    """The details of groups of samples, encoded once; `sections` has those of some groups.

    group_start: int64 (g + 1,), group i has the samples [group_start[i], group_start[i + 1]). dense: smaller columns,
    several times slower to write, for chunks. Shapes must be storable.
    """

    def __init__(
        self,
        details: SampleDetails,
        ts_ms: NDArray[np.int64],
        value: NDArray[np.float64],
        group_start: NDArray[np.int64],
        *,
        dense: bool,
    ) -> None:
        self._group_start = group_start
        self._starts = _EncodedStarts(details.start_ms, ts_ms, group_start) if details.start_ms is not None else None
        self._histograms = _EncodedHistograms(details, value, group_start, dense) if details.histograms else None

    def bytes_bound(self) -> NDArray[np.int64]:
        """int64 (g,): the sections of some groups have at most the sum of theirs, tags and lengths included."""
        found = np.full(len(self._group_start) - 1, _GROUP_BYTES, np.int64)
        if self._starts is not None:
            found += np.diff(self._starts.ends, prepend=0)
        if self._histograms is not None:
            found += self._histograms.bytes_bound()
        return found

    def bucket_counts(self) -> NDArray[np.int64]:
        """int64 (g,): bucket counts of each group."""
        none = np.zeros(len(self._group_start) - 1, np.int64)
        return none if self._histograms is None else self._histograms.bucket_counts

    def sections(self, first: int, last: int) -> list[Section]:
        """The sections of the groups [first, last); none where their samples have no details."""
        made: list[Section] = []
        if self._starts is not None and (data := self._starts.section(first, last)):
            made.append((Tag.STARTS, data))
        if self._histograms is not None and (data := self._histograms.section(first, last)):
            made.append((Tag.HISTOGRAMS, data))
        return made


class _EncodedStarts:
    def __init__(self, start_ms: NDArray[np.int64], ts_ms: NDArray[np.int64], group_start: NDArray[np.int64]) -> None:
        out = np.empty(START_BYTES_MAX * len(ts_ms), np.uint8)
        self.ends = np.empty(len(group_start) - 1, np.int64)
        given = np.ascontiguousarray(ts_ms), np.ascontiguousarray(start_ms)
        size = kernels.encode_groups_of_starts_kernel(*given, group_start, out, self.ends)
        self._data = out[:size]
        self._some = _starts_from(start_ms != 0)[group_start]

    def section(self, first: int, last: int) -> bytes:
        if self._some[first] == self._some[last]:
            return b""
        return _slice(self._data, self.ends, first, last)


class _EncodedHistograms:
    def __init__(
        self, details: SampleDetails, value: NDArray[np.float64], group_start: NDArray[np.int64], dense: bool
    ) -> None:
        assert details.histograms is not None
        assert details.histogram_of is not None
        self._group_start = group_start
        self._is_histogram = details.histogram_of >= 0
        columns = _in_order(details.histograms, details.histogram_of[self._is_histogram])
        sums = value[self._is_histogram]
        assert (sums.view(np.int64) == columns.sums.view(np.int64)).all(), "the value of a histogram is its sum"
        assert int(columns.hints.max(initial=0)) <= GAUGE, "a hint that is none"
        self._stored, self._shape_of = _distinct(columns)
        before = _starts_from(self._is_histogram)
        self._histogram_start = before[group_start]
        layout = _Layout.of(self._stored, self._shape_of, self._histogram_start)
        totals = np.empty(len(columns))
        kernels.totals_kernel(columns.starts, columns.buckets, columns.zero_counts, totals)
        is_total = columns.is_integer & (totals == columns.counts) & (totals > 0) & (totals <= EXACT_MAX)
        self._attributes = (columns.hints | columns.is_integer * _INTEGER | is_total * _TOTAL).astype(np.uint8)
        by_column = np.empty(len(columns.buckets))
        layout.transpose(columns.buckets, by_column, to_rows=False)
        self._columns = (
            _Columns.of(self._histogram_start, columns.zero_counts, dense),
            _Columns.of(_starts_of(~is_total, self._histogram_start), columns.counts[~is_total], dense),
            _Columns.of(layout.column_start, by_column, dense).grouped(layout.group_columns),
        )
        self.bucket_counts = np.diff(columns.starts[self._histogram_start])
        self._layout = layout

    def section(self, first: int, last: int) -> bytes:
        start, end = int(self._histogram_start[first]), int(self._histogram_start[last])
        if start == end:
            return b""
        is_histogram = self._is_histogram[self._group_start[first] : self._group_start[last]]
        shape_of, attributes = self._shape_of[start:end], self._attributes[start:end]
        kinds = np.empty(kernels.KIND_BYTES_MAX * (len(is_histogram) + 1), np.uint8)
        kinds = kinds[: kernels.write_kinds_kernel(is_histogram, kinds)]
        numbers = np.full(len(self._stored), -1, np.int64)
        runs = np.empty(kernels.RUN_BYTES_MAX * len(shape_of), np.uint8)
        runs = runs[: kernels.write_runs_kernel(shape_of, attributes, numbers, runs)]
        used = np.flatnonzero(numbers >= 0)
        out = bytearray(kinds.tobytes())
        _put_varint(out, len(used))
        for shape in used[np.argsort(numbers[used])].tolist():
            data = self._stored[shape].data
            _put_varint(out, len(data))
            out += data
        out += runs.tobytes()
        for columns in self._columns:
            out += columns.slice(first, last)
        return bytes(out)

    def bytes_bound(self) -> NDArray[np.int64]:
        """Bytes of each group beside _GROUP_BYTES, as if it shared no shape and no run with its neighbours."""
        found = np.zeros(len(self._group_start) - 1, np.int64)
        for columns in self._columns:
            found += np.diff(columns.ends, prepend=0)
        shape_bytes = np.array([len(one.data) + 3 for one in self._stored], np.int64)
        np.add.at(found, self._layout.pair_group, shape_bytes[self._layout.pair_shape])
        changes = np.flatnonzero(np.diff(self._is_histogram)) + 1
        np.add.at(found, _group_of(changes, self._group_start), kernels.KIND_BYTES_MAX)
        changes = (np.diff(self._shape_of) != 0) | (np.diff(self._attributes) != 0)
        runs = np.concatenate((np.zeros(1, np.int64), np.flatnonzero(changes) + 1))
        np.add.at(found, _group_of(runs, self._histogram_start), kernels.RUN_BYTES_MAX)
        return found


@dataclass(frozen=True, slots=True)
class _Columns:
    """Encoded columns back to back. ends: int64, the end of each group's bytes."""

    data: NDArray[np.uint8]
    ends: NDArray[np.int64]

    @classmethod
    def of(cls, starts: NDArray[np.int64], values: NDArray[np.float64], dense: bool) -> _Columns:
        """One column for each values[starts[i]:starts[i + 1]]."""
        out = np.empty(values_bound(len(values)) + len(starts), np.uint8)
        ends = np.empty(len(starts) - 1, np.int64)
        working = scratch(int(np.diff(starts).max(initial=0)))
        size = kernels.encode_columns_of_kernel(starts, np.ascontiguousarray(values), dense, out, ends, working)
        return cls(out[:size].copy(), ends)

    def grouped(self, group_columns: NDArray[np.int64]) -> _Columns:
        """The same, where group i has the columns [group_columns[i], group_columns[i + 1])."""
        return _Columns(self.data, np.concatenate((np.zeros(1, np.int64), self.ends))[group_columns[1:]])

    def slice(self, first: int, last: int) -> bytes:
        return _slice(self.data, self.ends, first, last)


def decode_details(
    sections: Iterable[Section],
    ts_ms: NDArray[np.int64],
    value: NDArray[np.float64],
    group_start: NDArray[np.int64],
    *,
    bucket_counts_max: int,
) -> SampleDetails:
    """The details in these sections of the samples ts_ms, value (n,). Raises CorruptData (corrupt_details), also above
    bucket_counts_max bucket counts, the limit of what is allocated."""
    start_ms, histograms, histogram_of = None, None, None
    for tag, data in sections:
        if tag is Tag.STARTS:
            start_ms = _decode_starts(data, ts_ms, group_start)
        else:
            histograms, histogram_of = _HistogramsReader(data, group_start, bucket_counts_max).read(value)
    return SampleDetails(start_ms, histograms, histogram_of)


def _decode_starts(data: bytes, ts_ms: NDArray[np.int64], group_start: NDArray[np.int64]) -> NDArray[np.int64]:
    starts = np.empty(len(ts_ms), np.int64)
    given = np.frombuffer(data, np.uint8), 0, len(data), ts_ms, group_start
    if kernels.decode_groups_of_starts_kernel(*given, starts) != len(data) or not starts.any():
        raise _corrupt("start columns do not hold the samples")
    return starts


class _HistogramsReader:
    def __init__(self, data: bytes, group_start: NDArray[np.int64], bucket_counts_max: int) -> None:
        self._bytes = data
        self._data = np.frombuffer(data, np.uint8)
        self._at = 0
        self._group_start = group_start
        self._bucket_counts_max = bucket_counts_max

    def read(self, value: NDArray[np.float64]) -> tuple[HistogramColumns, NDArray[np.int64]]:
        """The histograms, and the histogram of each sample."""
        histogram_of, found = np.empty(len(value), np.int64), np.zeros(1, np.int64)
        self._to(kernels.read_kinds_kernel(self._data, self._at, self._end, histogram_of, found), "runs of kinds")
        count = int(found[0])
        if not count:
            raise _corrupt("no sample is a histogram")
        stored = self._shapes(count)
        shape_of, attributes = np.empty(count, np.int64), np.empty(count, np.uint8)
        read = kernels.read_runs_kernel(self._data, self._at, self._end, len(stored), shape_of, attributes)
        self._to(read, "runs of shapes")
        sizes = np.array([len(one.keys) for one in stored], np.int64)
        starts = _starts_from(sizes[shape_of])
        if starts[-1] > self._bucket_counts_max:
            raise _corrupt(f"claims {starts[-1]} bucket counts, the limit is {self._bucket_counts_max}")
        before = _starts_from(histogram_of >= 0)
        histogram_start = before[self._group_start]
        layout = _Layout.of(stored, shape_of, histogram_start)
        zero_counts = self._column(histogram_start)
        is_total = (attributes & _TOTAL) != 0
        counts_given = self._column(_starts_of(~is_total, histogram_start))
        by_column, buckets = self._column(layout.column_start), np.empty(int(starts[-1]))
        if self._at != self._end:
            raise _corrupt(f"{self._end - self._at} bytes follow the columns")
        layout.transpose(buckets, by_column, to_rows=True)
        counts = np.empty(count)
        kernels.totals_kernel(starts, buckets, zero_counts, counts)
        counts.view(np.int64)[~is_total] = counts_given.view(np.int64)
        histograms = HistogramColumns(
            tuple(one.shape for one in stored),
            shape_of.astype(np.int32),
            starts,
            buckets,
            counts,
            value[histogram_of >= 0],
            zero_counts,
            attributes & np.uint8(3),
            (attributes & _INTEGER) != 0,
        )
        return histograms, histogram_of

    @property
    def _end(self) -> int:
        return len(self._bytes)

    def _to(self, position: int, what: str) -> None:
        if position < 0:
            raise _corrupt(f"{what} do not hold the samples")
        self._at = position

    def _shapes(self, histograms: int) -> list[_Stored]:
        count = self._varint()
        if not 0 < count <= min(histograms, self._end - self._at):
            raise _corrupt(f"{count} shapes of {histograms} histograms")
        found: list[_Stored] = []
        buckets = 0
        for _ in range(count):
            size = self._varint()
            if size > self._end - self._at:
                raise _corrupt("a shape is cut")
            found.append(_read_shape(self._bytes[self._at : self._at + size]))
            self._at += size
            # Every shape has a sample. Shapes of many buckets take few bytes, so their memory is counted here.
            buckets += len(found[-1].keys)
            if buckets > self._bucket_counts_max:
                raise _corrupt(f"claims over {self._bucket_counts_max} buckets")
        return found

    def _column(self, starts: NDArray[np.int64]) -> NDArray[np.float64]:
        values = np.empty(int(starts[-1]))
        read = kernels.decode_columns_of_kernel(self._data, self._at, self._end, starts, values)
        self._to(read, "columns of counts")
        return values

    def _varint(self) -> int:
        number, self._at = _get_varint(self._bytes, self._at)
        return number


@dataclass(frozen=True, slots=True)
class _Stored:
    """A shape, its bytes, and its keys: int64, 2 * index + (1 for a negative bucket) of each bucket."""

    shape: HistogramShape
    data: bytes
    keys: NDArray[np.int64]

    @classmethod
    def of(cls, shape: HistogramShape, data: bytes) -> _Stored:
        keys = 2 * shape.indexes
        keys[shape.positive_buckets :] += 1
        return cls(shape, data, keys)


@dataclass(frozen=True, slots=True)
class _Layout:
    """Which columns have the buckets of which histograms.

    A run is histograms in succession with one shape in one group; a pair is a group and a shape. run_length, run_pair:
    int64 (r,). pair_group, pair_shape: int64 (p,). The buckets of pair i are in the columns
    column_of[pair_start[i]:pair_start[i + 1]]; column j has the counts [column_start[j], column_start[j + 1]). Group i
    has the columns [group_columns[i], group_columns[i + 1]).
    """

    run_length: NDArray[np.int64]
    run_pair: NDArray[np.int64]
    pair_group: NDArray[np.int64]
    pair_shape: NDArray[np.int64]
    pair_start: NDArray[np.int64]
    column_of: NDArray[np.int64]
    column_start: NDArray[np.int64]
    group_columns: NDArray[np.int64]

    @classmethod
    def of(cls, stored: Sequence[_Stored], shape_of: NDArray[np.int64], histogram_start: NDArray[np.int64]) -> _Layout:
        """The layout of histograms with these shapes. Group i has [histogram_start[i], histogram_start[i + 1])."""
        if len(stored) == 1 and len(histogram_start) == 2:
            return cls._of_one(stored[0], len(shape_of))
        zero = np.zeros(1, np.int64)
        group_of = np.repeat(np.arange(len(histogram_start) - 1), np.diff(histogram_start))
        run_first = np.concatenate((zero, np.flatnonzero(np.diff(shape_of) | np.diff(group_of)) + 1))
        run_shape, run_group = shape_of[run_first], group_of[run_first]
        pairs, run_pair = np.unique(run_group * len(stored) + run_shape, return_inverse=True)
        pair_group, pair_shape = pairs // len(stored), pairs % len(stored)
        pair_family = np.empty(len(pairs), np.int64)
        pair_family[run_pair] = _families(stored, run_shape, run_group)
        keys, key_start = _keys(stored)
        places, pair_start = csr_places(key_start, pair_shape)
        lengths = np.diff(pair_start)
        column_of, columns = _ranks(np.repeat(pair_family, lengths), keys[places])
        column_group, column_start = np.empty(columns, np.int64), np.empty(columns + 1, np.int64)
        column_group[column_of] = np.repeat(pair_group, lengths)
        run_length = np.diff(run_first, append=len(shape_of))
        kernels.column_starts_kernel(run_length, run_pair, pair_start, column_of, column_start)
        group_columns = np.searchsorted(column_group, np.arange(len(histogram_start)))
        return cls(run_length, run_pair, pair_group, pair_shape, pair_start, column_of, column_start, group_columns)

    @classmethod
    def _of_one(cls, stored: _Stored, histograms: int) -> _Layout:
        """The layout of one group with one shape, as most log records have it: the general way takes 100 us."""
        zero, buckets = np.zeros(1, np.int64), len(stored.keys)
        column_of = np.empty(buckets, np.int64)
        column_of[np.argsort(stored.keys)] = np.arange(buckets)
        ends = np.array([0, buckets], np.int64)
        run_length, column_start = np.array([histograms], np.int64), np.arange(buckets + 1) * histograms
        return cls(run_length, zero, zero, zero, ends, column_of, column_start, ends)

    def transpose(self, rows: NDArray[np.float64], columns: NDArray[np.float64], *, to_rows: bool) -> None:
        """Copy counts from histogram order to column order, or back."""
        arrays = self.run_length, self.run_pair, self.pair_start, self.column_of, self.column_start.copy()
        kernels.transpose_kernel(*arrays, np.ascontiguousarray(rows) if not to_rows else rows, columns, to_rows)


def _families(
    stored: Sequence[_Stored], run_shape: NDArray[np.int64], run_group: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The family of each run: group, schema and bounds, numbered in the order of their first use."""
    places: dict[tuple[int, tuple[float, ...]], int] = {}
    of_shape = np.array([places.setdefault((one.shape.schema, one.shape.bounds), len(places)) for one in stored])
    keys = run_group * len(places) + of_shape[run_shape]
    _, first, family = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[family]


def _keys(stored: Sequence[_Stored]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    lengths = [len(one.keys) for one in stored]
    return np.concatenate([one.keys for one in stored]), np.cumsum([0, *lengths])


def _ranks(family: NDArray[np.int64], keys: NDArray[np.int64]) -> tuple[NDArray[np.int64], int]:
    """The rank of each (family, key) among the distinct ones, and how many there are."""
    if not len(keys):
        return keys, 0
    families = int(family.max()) + 1
    low, high = np.full(families, 1 << 40), np.full(families, -1 << 40)
    np.minimum.at(low, family, keys)
    np.maximum.at(high, family, keys)
    widths = np.maximum(high - low + 1, 0)
    if widths.sum() > 4 * len(keys) + _WIDE:
        distinct, ranks = np.unique((family << 34) + keys, return_inverse=True)
        return ranks, len(distinct)
    places = keys + (np.cumsum(widths) - widths - low)[family]
    present = np.zeros(int(widths.sum()), np.bool_)
    present[places] = True
    numbers = np.cumsum(present) - 1
    return numbers[places], int(numbers[-1]) + 1


def _in_order(columns: HistogramColumns, wanted: NDArray[np.int64]) -> HistogramColumns:
    """The histograms with these indexes, columns contiguous."""
    if len(wanted) == len(columns) and (wanted == np.arange(len(wanted))).all():
        return columns
    return columns.take(wanted)


def _distinct(columns: HistogramColumns) -> tuple[list[_Stored], NDArray[np.int64]]:
    """The distinct shapes that are used, and the shape of each histogram."""
    used, shape_of = np.unique(columns.shape_of, return_inverse=True)
    places: dict[bytes, int] = {}
    stored: list[_Stored] = []
    numbers: list[int] = []
    for number in used.tolist():
        one = _stored(columns.shapes[number])
        numbers.append(places.setdefault(one.data, len(stored)))
        if numbers[-1] == len(stored):
            stored.append(one)
    return stored, np.array(numbers, np.int64)[shape_of]


def _starts_of(where: NDArray[np.bool_], histogram_start: NDArray[np.int64]) -> NDArray[np.int64]:
    """Starts of the groups among the histograms `where`."""
    return _starts_from(where)[histogram_start]


def _starts_from(lengths: NDArray[np.generic]) -> NDArray[np.int64]:
    """0, and the sums of the first lengths, (n + 1,)."""
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)))


def _group_of(places: NDArray[np.int64], group_start: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.searchsorted(group_start, places, side="right") - 1


def _slice(data: NDArray[np.uint8], ends: NDArray[np.int64], first: int, last: int) -> bytes:
    return data[ends[first - 1] if first else 0 : ends[last - 1]].tobytes()


def _stored(shape: HistogramShape) -> _Stored:
    assert is_storable(shape), "a shape with too many buckets"
    size = shape.buckets + len(shape.positive) + len(shape.negative)
    return _cached(shape) if max(size, len(shape.bounds)) <= _CACHED_BUCKETS_MAX else _encoded_shape(shape)


@lru_cache(maxsize=_CACHED_SHAPES)
def _cached(shape: HistogramShape) -> _Stored:
    return _encoded_shape(shape)


def _encoded_shape(shape: HistogramShape) -> _Stored:
    return _Stored.of(shape, _shape_bytes(shape))


def _shape_bytes(shape: HistogramShape) -> bytes:
    out = bytearray()
    _put_varint(out, _zigzag(shape.schema))
    if shape.has_bounds:
        _put_varint(out, len(shape.bounds))
        out += b"".join(_F64.pack(bound + 0.0) for bound in shape.bounds)  # -0.0 is equal to 0.0: one form of both.
        _put_spans(out, shape.positive)
        return bytes(out)
    out += _F64.pack(shape.zero_threshold + 0.0)
    _put_spans(out, shape.positive)
    _put_spans(out, shape.negative)
    return bytes(out)


def _put_spans(out: bytearray, spans: Sequence[Span]) -> None:
    _put_varint(out, len(spans))
    for offset, length in spans:
        _put_varint(out, _zigzag(offset))
        _put_varint(out, length)


_shapes: dict[bytes, _Stored] = {}  # Cache. A shape costs 20 us to read, and the series of a record share few.


def _read_shape(data: bytes) -> _Stored:
    found = _shapes.get(data)
    if found is None:
        found = _parse_shape(data)
        if max(len(found.keys), len(data) // 2) <= _CACHED_BUCKETS_MAX:
            if len(_shapes) >= _CACHED_SHAPES:
                _shapes.clear()
            _shapes[data] = found
    return found


def _parse_shape(data: bytes) -> _Stored:
    """The shape in exactly these bytes. Raises CorruptData (corrupt_details)."""
    at = 0

    def varint(limit: int) -> int:
        nonlocal at
        number, at = _get_varint(data, at)
        if number > limit:
            raise _corrupt(f"a shape has {number} where at most {limit} may be")
        return number

    def floats(count: int) -> tuple[float, ...]:
        nonlocal at
        at += _F64.size * count
        if at > len(data):
            raise _corrupt("a shape is cut")
        return struct.unpack_from(f"<{count}d", data, at - _F64.size * count)

    def spans() -> tuple[Span, ...]:
        count = varint(min(SHAPE_BUCKETS_MAX, (len(data) - at) // 2))
        return tuple((_unzigzag(varint(1 << 33)), varint(SHAPE_BUCKETS_MAX)) for _ in range(count))

    schema = _unzigzag(varint(1 << 8))
    bounds = floats(varint(SHAPE_BUCKETS_MAX)) if schema == CUSTOM_BOUNDS else ()
    (threshold,) = (0.0,) if schema == CUSTOM_BOUNDS else floats(1)
    positive = spans()
    negative = () if schema == CUSTOM_BOUNDS else spans()
    if at != len(data):
        raise _corrupt(f"{len(data) - at} bytes follow a shape")
    try:
        shape = HistogramShape(schema, threshold, positive, negative, bounds)
    except InvalidHistogram as refused:
        raise _corrupt(str(refused)) from refused
    if not is_storable(shape):
        raise _corrupt(f"a shape has over {SHAPE_BUCKETS_MAX} buckets")
    return _Stored.of(shape, data)


def _zigzag(number: int) -> int:
    return number << 1 if number >= 0 else -number * 2 - 1


def _unzigzag(number: int) -> int:
    return number >> 1 if not number & 1 else -(number + 1 >> 1)


def _put_varint(out: bytearray, number: int) -> None:
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)


def _get_varint(data: bytes, at: int) -> tuple[int, int]:
    """(number, new position). Raises CorruptData."""
    number = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _corrupt("cut in a number")
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
    raise _corrupt("an endless number")


def _corrupt(why: str) -> CorruptData:
    return CorruptData(f"details are corrupt: {why}", reason="corrupt_details")
