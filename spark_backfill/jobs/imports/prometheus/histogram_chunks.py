"""Histogram chunks: decode a chunk of native histograms of a block: header, layout of the buckets, samples.

Layout: docs/formats/prometheus-block.md. Bad bytes are CorruptData; memory is bounded by the bytes of the chunk.
"""

from __future__ import annotations

import math
import struct

import numpy as np
from numpy.typing import NDArray

from spark_backfill.jobs.imports.prometheus.histogram_kernels import NO_STARTS, NUMBER_BITS, decode_histograms_kernel
from spark_backfill.jobs.imports.prometheus.index import ByteCursor
from spark_backfill.jobs.imports.prometheus.xor_kernels import BROKEN
from tsdb.codec.columns.details import SHAPE_BUCKETS_MAX, is_storable
from tsdb.model.details import SampleDetails
from tsdb.model.histograms import (
    CUSTOM_BOUNDS,
    GAUGE,
    NO_BUCKETS,
    UNKNOWN,
    HistogramColumns,
    HistogramShape,
    InvalidHistogram,
    Span,
    count_problems,
)
from tsdb.model.stale import STALE_BITS

INTEGER, FLOAT, INTEGER_ST, FLOAT_ST = 2, 3, 5, 6  # Encodings.
ENCODINGS = (INTEGER, FLOAT, INTEGER_ST, FLOAT_ST)
_HEADER_BYTES = 3
_COUNT_MAX_ST = 0x3FFF
_GAUGE_BITS = 0b11

Decoded = tuple[NDArray[np.int64], NDArray[np.float64], SampleDetails]


def decode_histograms(body: ByteCursor, encoding: int) -> Decoded | None:
    """(ts_ms, sums, details) of a chunk's data; None for histograms that cannot be stored: of an unknown schema, of
    over 8,192 buckets, or with counts that do not sum or are inexact. Raises CorruptData (corrupt_block)."""
    if body.end - body.at < _HEADER_BYTES:
        raise body.corrupt("a chunk that ends before its samples")
    data = np.frombuffer(body.data, np.uint8)
    first, second, third = data[body.at : body.at + _HEADER_BYTES].tolist()
    has_starts = encoding in (INTEGER_ST, FLOAT_ST)
    count = (first << 8 | second) & (_COUNT_MAX_ST if has_starts else 0xFFFF)
    is_gauge = (first if has_starts else third) >> 6 == _GAUGE_BITS
    if not count:
        return np.zeros(0, np.int64), np.zeros(0), SampleDetails()
    layout = _Layout(body, _HEADER_BYTES)
    shape = layout.shape()
    if shape is None:
        return None
    width, is_float = shape.buckets, encoding in (FLOAT, FLOAT_ST)
    bits = 8 * body.end - layout.place
    if count > bits:
        raise body.corrupt("a chunk that ends before its samples")
    ts_ms, start_ms, widths = (np.empty(count, np.int64) for _ in range(3))
    numbers, buckets = np.empty(3 * count, np.uint64), np.empty(min(count * width, bits), np.uint64)
    written = decode_histograms_kernel(
        data, layout.place, body.end, is_float, third if has_starts else NO_STARTS, shape.positive_buckets,
        ts_ms, start_ms, numbers, widths, buckets, np.zeros(4 * (3 + width), np.uint64),
    )  # fmt: skip
    if written == BROKEN:
        raise body.corrupt("a chunk that ends before its samples")
    sums = numbers[2::3].copy().view(np.float64)
    is_stale = numbers[2::3] == STALE_BITS
    counts, zero_counts, own = (
        _floats(column, is_float) for column in (numbers[0::3], numbers[1::3], buckets[:written])
    )
    columns = HistogramColumns(
        (shape, NO_BUCKETS),
        is_stale.astype(np.int32),
        np.concatenate((np.zeros(1, np.int64), np.cumsum(widths))),
        own,
        np.where(is_stale, 0.0, counts),
        sums,
        np.where(is_stale, 0.0, zero_counts),
        np.where(is_stale, UNKNOWN, GAUGE if is_gauge else UNKNOWN).astype(np.uint8),
        np.full(count, not is_float),
    )
    if count_problems(columns).any():
        return None
    return ts_ms, sums, SampleDetails(start_ms if start_ms.any() else None, columns, np.arange(count))


def _floats(column: NDArray[np.uint64], is_float: bool) -> NDArray[np.float64]:
    return column.copy().view(np.float64) if is_float else column.view(np.int64).astype(np.float64)


class _Layout:
    """Reads the layout of a chunk bit by bit. place: the next bit, from the first byte of the data on."""

    def __init__(self, body: ByteCursor, skipped: int) -> None:
        self._body = body
        self.place = 8 * (body.at + skipped)

    def shape(self) -> HistogramShape | None:
        """The shape of the histograms; None where it has no meaning or cannot be stored."""
        threshold, schema = self._threshold(), self._signed()
        spans = [self._spans() for _ in range(2)]
        bounds = self._bounds() if schema == CUSTOM_BOUNDS else ()
        if spans[0] is None or spans[1] is None or bounds is None:
            return None
        try:
            found = HistogramShape(schema, threshold, spans[0], spans[1], bounds)
        except InvalidHistogram:
            return None
        return found if is_storable(found) else None

    def _threshold(self) -> float:
        code = self._bits(8)
        if code == 255:
            return self._float()
        return math.ldexp(0.5, code - 243) if code else 0.0

    def _spans(self) -> tuple[Span, ...] | None:
        """None where there are more than can be stored: those are not read."""
        count = self._plain()
        if count > SHAPE_BUCKETS_MAX:
            return None
        pairs = [(self._plain(), self._signed()) for _ in range(count)]
        return tuple((offset, length) for length, offset in pairs)

    def _bounds(self) -> tuple[float, ...] | None:
        count = self._plain()
        if count > SHAPE_BUCKETS_MAX:
            return None
        return tuple(self._bound() for _ in range(count))

    def _bound(self) -> float:
        code = self._plain()
        return (code - 1) / 1000 if code else self._float()

    def _float(self) -> float:
        return float(struct.unpack("<d", struct.pack("<Q", self._bits(64)))[0])

    def _signed(self) -> int:
        size = self._size()
        number = self._bits(size)
        return number - (1 << size) if (size == 64 and number >> 63) or number > (1 << size >> 1) else number

    def _plain(self) -> int:
        return self._bits(self._size())

    def _size(self) -> int:
        for ones in range(8):
            if not self._bits(1):
                return NUMBER_BITS[ones - 1] if ones else 0
        return 64

    def _bits(self, size: int) -> int:
        end = self.place + size
        if end > 8 * self._body.end:
            raise self._body.corrupt("a chunk that ends in its layout")
        number = int.from_bytes(self._body.data[self.place >> 3 : end + 7 >> 3], "big") >> (-end & 7)
        self.place = end
        return number & ((1 << size) - 1)
