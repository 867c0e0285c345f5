"""Kernels that read a WriteRequest (proto/tsdb/v1/ingest.proto) from its wire bytes, without an object for a series.

Twin: the generated class ingest_pb2.WriteRequest.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, short_kernel
from tsdb.codec.memory_kernels import copy_bytes

LABELS, SAMPLE_COUNTS, TS_MS, VALUES, PARTIAL = 1, 2, 3, 4, 5
EXEMPLAR_SERIES, EXEMPLAR_TS_MS, EXEMPLAR_VALUES, EXEMPLAR_LABEL_LENGTHS, EXEMPLAR_LABELS = 6, 7, 8, 9, 10
START_MS, HISTOGRAMS = 11, 12
VARINT, FIXED_64, BYTES, FIXED_32 = 0, 1, 2, 5

# Columns of `out` of scan_kernel. Fields 2 to 12 of bytes have their start and end, which are 0 when absent.
OUT_ROWS, OUT_LABEL_BYTES, OUT_PARTIAL, OUT_SPANS = 0, 1, 2, 3
OUT = OUT_SPANS + 2 * (HISTOGRAMS - LABELS)

# Errors. `out[OUT_ROWS]` is then the first byte of the field.
CUT, LONG_NUMBER, WIRE_TYPE = -1, -2, -3
# protobuf's own bounds: tags and sizes have at most 32 bits, a field's number 29.
_SHORT_BYTES_MAX, _NUMBER_BYTES_MAX = 5, 10
_FIELD_MAX = (1 << 29) - 1


@short_kernel
def scan_kernel(data: NDArray[np.uint8], out: NDArray[np.int64]) -> int:
    """Find the fields; returns 0 or the error. When a field comes twice, the last one counts. Unknown fields are
    skipped."""
    out[:] = 0
    at = 0
    while at < data.size:
        field = at
        tag, at = _varint(data, at, _SHORT_BYTES_MAX)
        value = 0
        kind, number = tag & 7, tag >> 3
        if at >= 0 and kind in (VARINT, BYTES):
            value, at = _varint(data, at, _SHORT_BYTES_MAX if kind == BYTES else _NUMBER_BYTES_MAX)
        start = at
        if at >= 0:
            at = _end(data.size, at, kind, number, value)
        if at < 0:
            out[OUT_ROWS] = field
            return at
        if number == PARTIAL and kind == VARINT:
            out[OUT_PARTIAL] = value != 0
        elif number == LABELS and kind == BYTES:
            out[OUT_ROWS] += 1
            out[OUT_LABEL_BYTES] += value
        elif SAMPLE_COUNTS <= number <= HISTOGRAMS and number != PARTIAL and kind == BYTES:
            out[OUT_SPANS + 2 * (number - SAMPLE_COUNTS)] = start
            out[OUT_SPANS + 2 * (number - SAMPLE_COUNTS) + 1] = at
    return 0


@short_kernel
def copy_labels_kernel(data: NDArray[np.uint8], labels: NDArray[np.uint8], label_starts: NDArray[np.int64]) -> None:
    """Join the label sets of a message that scan_kernel accepted."""
    at = end = row = 0
    label_starts[0] = 0
    while row < label_starts.size - 1:
        tag, at = _varint(data, at, _SHORT_BYTES_MAX)
        kind = tag & 7
        if kind == BYTES:
            size, at = _varint(data, at, _NUMBER_BYTES_MAX)
            if tag >> 3 == LABELS:
                copy_bytes(labels, end, data, at, size)
                end += size
                row += 1
                label_starts[row] = end
            at += size
        elif kind == VARINT:
            _, at = _varint(data, at, _NUMBER_BYTES_MAX)
        else:
            at += 8 if kind == FIXED_64 else 4


@helper
def _end(size: int, at: int, kind: int, number: int, value: int) -> int:
    """Position after the field whose content starts at `at`, or the error. value: the number, or the size of the
    content."""
    if number <= 0 or number > _FIELD_MAX or kind not in (VARINT, BYTES, FIXED_64, FIXED_32):
        return WIRE_TYPE
    if kind == BYTES:
        return CUT if value < 0 or value > size - at else at + value
    if kind == FIXED_64:
        at += 8
    elif kind == FIXED_32:
        at += 4
    return at if at <= size else CUT


@helper
def _varint(data: NDArray[np.uint8], at: int, bytes_max: int) -> tuple[int, int]:
    """(number, position behind it); an error stands in place of the position. Numbers wrap at 64 bits."""
    value = 0
    for index in range(bytes_max):
        if at + index >= data.size:
            return 0, CUT
        byte = int(np.int64(data[at + index]))
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            return value, at + index + 1
    return 0, LONG_NUMBER
