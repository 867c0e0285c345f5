"""Histograms of a remote-write request: its Histogram messages, in both versions, as columns."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.remote_write.histogram_kernels import (
    BOUNDS,
    BUCKETS,
    COUNT,
    FITS,
    HEAD,
    HINT,
    IS_INTEGER,
    NEGATIVE_SPANS,
    NO_SHAPE,
    NUMBERS,
    POSITIVE_SPANS,
    SCHEMA,
    SIZES,
    START_MS,
    SUM,
    TS_MS,
    WORDS,
    ZERO_COUNT,
    ZERO_THRESHOLD,
    histograms_kernel,
)
from tsdb.model.errors import InvalidRequest
from tsdb.model.histograms import (
    NO_BUCKETS,
    SCHEMA_MAX,
    HistogramColumns,
    HistogramShape,
    InvalidHistogram,
    count_errors,
)

SCHEMA_RESERVED_MAX = 52  # The finest schema that Prometheus knows, and reduces to SCHEMA_MAX.
_SEED = secrets.randbits(62)  # A sender cannot choose shapes whose hashes collide.


@dataclass(frozen=True, slots=True)
class WireHistograms:
    """n histograms, in the order of the request.

    ts_ms, start_ms: int64 (n,), ms since epoch UTC; a histogram without a start has 0. columns: those of all n; a
    refused histogram has no buckets there. errors: the refused ones, by index.
    """

    ts_ms: NDArray[np.int64]
    start_ms: NDArray[np.int64]
    columns: HistogramColumns
    errors: Mapping[int, InvalidRequest]


def decode_histograms(
    body: bytes | bytearray, spans: NDArray[np.int64], reserve: Callable[[int], None]
) -> WireHistograms:
    """The Histogram messages at these spans; spans: int64 (n, SPAN_COLUMNS), as in `Wire.histograms`.

    Raises InvalidRequest (malformed_request) for bytes that are not a Histogram message. reserve: called with bytes
    before they are allocated; raises Overloaded.
    """
    data, count = np.frombuffer(body, np.uint8), len(spans)
    sizes = np.zeros(SIZES, np.int64)
    _run(data, spans, sizes, 0, 0, 0)
    buckets, words = int(sizes[BUCKETS]), int(sizes[WORDS])
    slots = 1 << (2 * count).bit_length()
    # Words become Python numbers where shapes are made.
    reserve(8 * (buckets + 8 * words + slots + count * (2 * NUMBERS + 4)))
    filled = _run(data, spans, sizes, buckets, words, slots)
    numbers = filled.numbers
    shapes, bad_shapes, finer_by = _shapes(filled.words, filled.ends)
    errors = {int(one): bad_shapes[int(filled.shape_of[one])] for one in _among(filled.shape_of, bad_shapes)}
    mismatch = InvalidHistogram("invalid histogram: spans and counts differ", reason="histogram_spans_mismatch")
    errors |= {one: errors.get(one, mismatch) for one in np.flatnonzero(numbers[:, FITS] == 0).tolist()}
    columns = HistogramColumns(
        shapes,
        filled.shape_of,
        filled.starts,
        filled.buckets,
        _floats(numbers, COUNT),
        _floats(numbers, SUM),
        _floats(numbers, ZERO_COUNT),
        numbers[:, HINT].astype(np.uint8),
        numbers[:, IS_INTEGER] == 1,
    )
    if errors:
        columns = columns.emptied(np.fromiter(errors, np.int64, len(errors)))
    if finer_by:
        # Imported here, because no known sender has such schemas.
        from ingest.remote_write.resolution import reduced

        columns = reduced(columns, finer_by)
    errors |= {one: error for one, error in count_errors(columns).items() if one not in errors}
    return WireHistograms(numbers[:, TS_MS].copy(), numbers[:, START_MS].copy(), columns, errors)


@dataclass(frozen=True, slots=True)
class _Filled:
    """Output of the kernel; see there."""

    numbers: NDArray[np.int64]
    shape_of: NDArray[np.int32]
    starts: NDArray[np.int64]
    buckets: NDArray[np.float64]
    words: NDArray[np.int64]
    ends: NDArray[np.int64]


def _run(
    data: NDArray[np.uint8], spans: NDArray[np.int64], sizes: NDArray[np.int64], buckets: int, words: int, slots: int
) -> _Filled:
    count = len(spans)
    rows = count if slots else 0
    filled = _Filled(
        np.empty((rows, NUMBERS), np.int64),
        np.empty(rows, np.int32),
        np.zeros(rows + 1, np.int64),
        np.empty(buckets),
        np.empty(words, np.int64),
        np.zeros(rows + 1, np.int64),
    )
    shapes = histograms_kernel(
        data,
        spans,
        sizes,
        filled.numbers,
        filled.shape_of,
        filled.starts,
        filled.buckets,
        filled.words,
        filled.ends,
        np.full(slots, NO_SHAPE, np.int64),
        _SEED,
    )
    if shapes < 0:
        raise InvalidRequest(
            f"a native histogram is corrupt protobuf at byte {-2 - shapes}", reason="malformed_request"
        )
    return _Filled(
        filled.numbers, filled.shape_of, filled.starts, filled.buckets, filled.words, filled.ends[: shapes + 1]
    )


def _shapes(
    words: NDArray[np.int64], ends: NDArray[np.int64]
) -> tuple[tuple[HistogramShape, ...], dict[int, InvalidRequest], dict[int, int]]:
    """(all shapes, errors of those that have no meaning by index, and as in `reduced`, how much finer some were)."""
    found: list[HistogramShape] = []
    errors: dict[int, InvalidRequest] = {}
    finer_by: dict[int, int] = {}
    for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True):
        schema = int(words[start + SCHEMA])
        if SCHEMA_MAX < schema <= SCHEMA_RESERVED_MAX:
            finer_by[len(found)] = schema - SCHEMA_MAX
            schema = SCHEMA_MAX
        try:
            found.append(_shape(schema, words[start:end]))
        except InvalidHistogram as error:
            errors[len(found)] = error
            found.append(NO_BUCKETS)
    return tuple(found), errors, finer_by


def _shape(schema: int, words: NDArray[np.int64]) -> HistogramShape:
    """Raises InvalidHistogram."""
    positive, negative = int(words[POSITIVE_SPANS]), int(words[NEGATIVE_SPANS])
    pairs = words[HEAD : HEAD + 2 * (positive + negative)].reshape(-1, 2)
    spans = tuple((offset, length) for offset, length in pairs.tolist())
    bounds = words[len(words) - int(words[BOUNDS]) :].view(np.float64)
    threshold = float(words[ZERO_THRESHOLD : ZERO_THRESHOLD + 1].view(np.float64)[0])
    return HistogramShape(schema, threshold, spans[:positive], spans[positive:], tuple(bounds.tolist()))


def _among(shape_of: NDArray[np.int32], bad_shapes: Mapping[int, InvalidRequest]) -> NDArray[np.int64]:
    """Indexes of the histograms with a bad shape."""
    if not bad_shapes:
        return np.zeros(0, np.int64)
    return np.flatnonzero(np.isin(shape_of, np.fromiter(bad_shapes, np.int64, len(bad_shapes))))


def _floats(numbers: NDArray[np.int64], column: int) -> NDArray[np.float64]:
    return np.ascontiguousarray(numbers[:, column]).view(np.float64)
