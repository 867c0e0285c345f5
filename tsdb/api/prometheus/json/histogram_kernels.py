"""This kernel writes points that are histograms, each behind a comma:
`,[1435781451.781,{"count":"3","sum":"5","buckets":[[0,"1","2","3"]]}]`."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.api.prometheus.json.decimal_kernels import SCRATCH_BYTES, TEXT_BYTES_MAX, write_float
from tsdb.api.prometheus.json.rows_kernels import PREFIX_BYTES, write_prefix
from tsdb.codec.jit import Array2, helper, kernel
from tsdb.codec.memory_kernels import as_int64, copy_bytes
from tsdb.promql.evaluate.native.bucket_kernels import COUNT, CUSTOM, SCHEMA, SUM, ZERO_COUNT, first_positive
from tsdb.promql.evaluate.native.measure_kernels import bucket_at

BUCKET_BYTES_MAX = 3 * TEXT_BYTES_MAX + 16
POINT_BYTES_MAX = (
    PREFIX_BYTES + 2 * TEXT_BYTES_MAX + 64
)  # A point needs this beside its buckets: up to 24 bytes behind a text are overwritten.

_COUNT, _SUM = np.frombuffer(b'{"count":"', np.uint8), np.frombuffer(b'","sum":"', np.uint8)
_BUCKETS, _BETWEEN = np.frombuffer(b'","buckets":[', np.uint8), np.frombuffer(b'","', np.uint8)
_END_OF_BUCKET, _END_OF_BUCKETS = np.frombuffer(b'"]', np.uint8), np.frombuffer(b"]}]", np.uint8)
_END_OF_POINT = np.frombuffer(b'"}]', np.uint8)
_LOWER_OPEN, _UPPER_OPEN, _CLOSED = 0, 1, 3  # Which bounds are a part of a bucket, as the API numbers it.


@kernel
def write_histograms_kernel(
    starts: NDArray[np.int64],
    keys: NDArray[np.int64],
    buckets: NDArray[np.float64],
    numbers: Array2[np.float64],
    whole: Array2[np.int64],
    bounds_starts: NDArray[np.int64],
    bounds: NDArray[np.float64],
    rows: NDArray[np.int64],
    ts_ms: NDArray[np.int64],
    powers: Array2[np.uint64],
    out: NDArray[np.uint8],
) -> int:
    """Write the histograms `rows` with their times, a comma before each. Returns the number of bytes. Empty buckets are
    left out."""
    scratch = np.zeros(SCRATCH_BYTES, np.uint8)
    value = np.zeros(1, np.float64)
    at = 0
    for place in range(rows.size):
        row = rows[place]
        at = write_prefix(out, at, ts_ms[place], scratch) - 1  # A histogram has no quote before it.
        at = _write_number(out, _write(out, at, _COUNT), numbers[row, COUNT], value, powers, scratch)
        at = _write_number(out, _write(out, at, _SUM), numbers[row, SUM], value, powers, scratch)
        low, high = starts[row], starts[row + 1]
        split = first_positive(keys, low, high)
        has_zero = numbers[row, ZERO_COUNT] > 0
        written = 0
        for index in range(high - low + has_zero):
            lower, upper, count = bucket_at(
                index, starts, keys, buckets, numbers, whole, bounds_starts, bounds, row, split, has_zero
            )
            if count == 0:
                continue
            if written:
                out[at] = 44
                at += 1
            else:
                at = _write(out, at, _BUCKETS)
            written += 1
            out[at], out[at + 1], out[at + 2], out[at + 3] = 91, 48 + _sides(lower, upper, whole[row, SCHEMA]), 44, 34
            at = _write_number(out, at + 4, lower, value, powers, scratch)
            at = _write_number(out, _write(out, at, _BETWEEN), upper, value, powers, scratch)
            at = _write_number(out, _write(out, at, _BETWEEN), count, value, powers, scratch)
            at = _write(out, at, _END_OF_BUCKET)
        at = _write(out, at, _END_OF_BUCKETS if written else _END_OF_POINT)
    return at


@helper
def _sides(lower: float, upper: float, schema: int) -> int:
    if schema == CUSTOM:
        return _CLOSED if lower == -np.inf else _LOWER_OPEN
    if lower < 0 and upper > 0:
        return _CLOSED
    if lower == 0 and upper == 0:  # A zero bucket without a width.
        return _CLOSED
    return _UPPER_OPEN if lower < 0 else _LOWER_OPEN


@helper
def _write(out: NDArray[np.uint8], at: int, text: NDArray[np.uint8]) -> int:
    copy_bytes(out, at, text, 0, len(text))
    return at + len(text)


@helper
def _write_number(
    out: NDArray[np.uint8],
    at: int,
    number: float,
    value: NDArray[np.float64],
    powers: Array2[np.uint64],
    scratch: NDArray[np.uint8],
) -> int:
    value[0] = number
    return write_float(out, at, number, np.uint64(as_int64(value)[0]), powers, scratch)
