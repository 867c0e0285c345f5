"""Kernels that write rows of a result, each an object with labels and points, into a buffer of limited size.

A row is `{"metric":{`, its labels, a middle text, its points with commas between them, and an end text. A point is
`[1435781451.781,"0.5"]`; what stands before its value is its prefix.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.api.prometheus.json.decimal_kernels import SCRATCH_BYTES, TEXT_BYTES_MAX, write_float, write_integer
from tsdb.codec.jit import Array2, helper, kernel
from tsdb.codec.memory_kernels import as_int64, copy_bytes, load_u64, store_u64

PREFIX_BYTES = 32  # `,[-9223372036854775.807,"` has 25.
POINT_BYTES_MAX = PREFIX_BYTES + TEXT_BYTES_MAX + 2 + 24  # Up to 24 bytes behind a text are overwritten.
# Columns of `place`.
ROW, POINT, WRITTEN = 0, 1, 2

_COMMA, _HEAD = np.uint8(44), np.frombuffer(b'{"metric":{', np.uint8)
HEAD_BYTES = len(_HEAD) + 1  # The head, and a comma before it.


@kernel
def write_prefixes_kernel(ts_ms: NDArray[np.int64], out: NDArray[np.uint8], sizes: NDArray[np.int64]) -> None:
    """Write the prefix of each time into its PREFIX_BYTES of `out`, a comma before it."""
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    text = np.zeros(POINT_BYTES_MAX, np.uint8)
    for index in range(len(ts_ms)):
        sizes[index] = write_prefix(text, 0, ts_ms[index], scratch)
        copy_bytes(out, index * PREFIX_BYTES, text, 0, PREFIX_BYTES)


@kernel
def write_rows_kernel(
    place: NDArray[np.int64],
    starts: NDArray[np.int64],
    values: NDArray[np.float64],
    present: NDArray[np.bool_],
    ts_ms: NDArray[np.int64],
    prefixes: NDArray[np.uint8],
    prefix_sizes: NDArray[np.int64],
    labels: Array2[np.int32],
    texts: NDArray[np.uint8],
    text_starts: NDArray[np.int64],
    middle: NDArray[np.uint8],
    end: NDArray[np.uint8],
    head_bytes_max: int,
    powers: Array2[np.uint64],
    out: NDArray[np.uint8],
) -> int:
    """Write from `place` on until `out` is nearly full, and move `place`. Returns the number of bytes.

    place: the row, the point in it (0 before its labels are written), and whether a row is written. starts: points of
    each row, (rows + 1,). prefixes: the prefixes of the points of a row, if they are the same for all rows; without
    them ts_ms has the time of each point. labels: (rows, labels), the texts of each row's labels; -1 for none. A row
    without a present point is left out.
    """
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    bits = as_int64(values)
    row, point, written = place[ROW], place[POINT], place[WRITTEN]
    capacity = len(out) - POINT_BYTES_MAX - len(end)
    at = 0
    while row < len(starts) - 1:
        first, last = starts[row], starts[row + 1]
        index = first + point
        while index < last and not present[index]:
            index += 1
        begins = point == 0
        if begins:
            if index == last:
                row += 1
                continue
            if at + head_bytes_max > capacity:
                break
            at = _write_head(out, at, written, labels[row], texts, text_starts, middle)
            written = 1
        while index < last and at <= capacity:
            if present[index]:
                before = at - (1 if begins else 0)  # The comma before the first point is written to the byte before it.
                kept = out[before]
                if len(prefix_sizes):
                    _copy_prefix(out, before, prefixes, (index - first) * PREFIX_BYTES)
                    at = before + prefix_sizes[index - first]
                else:
                    at = write_prefix(out, before, ts_ms[index], scratch)
                if begins:
                    out[before] = kept  # which is then put back.
                    begins = False
                at = write_float(out, at, values[index], np.uint64(bits[index]), powers, scratch)
                store_u64(out, at, np.uint64(0x5D22))  # `"]`
                at += 2
            index += 1
        if index < last:
            point = index - first
            break
        copy_bytes(out, at, end, 0, len(end))
        at += len(end)
        row, point = row + 1, 0
    place[ROW], place[POINT], place[WRITTEN] = row, point, written
    return at


@helper
def _write_head(
    out: NDArray[np.uint8],
    at: int,
    written: int,
    labels: NDArray[np.int32],
    texts: NDArray[np.uint8],
    text_starts: NDArray[np.int64],
    middle: NDArray[np.uint8],
) -> int:
    if written:
        out[at] = _COMMA
        at += 1
    copy_bytes(out, at, _HEAD, 0, len(_HEAD))
    at += len(_HEAD)
    follows = False
    for number in labels:
        if number < 0:
            continue
        if follows:
            out[at] = _COMMA
            at += 1
        follows = True
        size = text_starts[number + 1] - text_starts[number]
        copy_bytes(out, at, texts, text_starts[number], size)
        at += size
    copy_bytes(out, at, middle, 0, len(middle))
    return at + len(middle)


@helper
def write_prefix(out: NDArray[np.uint8], at: int, time_ms: int, scratch: NDArray[np.uint8]) -> int:
    """Write `,[`, the time in seconds and `,"`. Returns the place behind them."""
    out[at], out[at + 1] = _COMMA, 91
    at += 2
    if time_ms < 0:
        out[at] = 45
        at += 1
    magnitude = np.uint64(abs(time_ms))
    seconds = magnitude // np.uint64(1000)
    at = write_integer(out, at, seconds, scratch)
    rest = np.int64(magnitude - seconds * np.uint64(1000))
    if rest:  # Three digits, as Prometheus writes them.
        out[at], out[at + 1] = 46, 48 + rest // 100
        out[at + 2], out[at + 3] = 48 + rest // 10 % 10, 48 + rest % 10
        at += 4
    out[at], out[at + 1] = _COMMA, 34
    return at + 2


@helper
def _copy_prefix(out: NDArray[np.uint8], at: int, prefixes: NDArray[np.uint8], start: int) -> None:
    for place in range(0, PREFIX_BYTES, 8):
        store_u64(out, at + place, load_u64(prefixes, start + place))
