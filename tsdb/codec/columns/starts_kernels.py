"""Kernels of start columns: encode and decode the optional start timestamps of samples as runs.

Layout: docs/formats/columns.md, "Start columns". A cumulative counter has one start timestamp for all of its samples,
and a delta counter the timestamp of the sample before or one interval. So nearly every column has few runs.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.bits_kernels import shift_right, unzigzag, zigzag
from tsdb.codec.jit import helper, kernel
from tsdb.codec.varint_kernels import get_varint, put_varint

ABSENT = 0  # The start timestamp of a sample that has none.
NONE, SAME, APART, CHAINED = range(4)  # Kinds of runs.
RUN_BYTES_MAX = 11  # Bytes for each sample: one of the run's head, and ten of its number.


@kernel
def encode_starts_kernel(ts: NDArray[np.int64], starts: NDArray[np.int64], out: NDArray[np.uint8], pos: int) -> int:
    """Write starts, int64 (n,) of the samples with the timestamps ts (n,), n < 2^31, at out[pos:].

    Returns the new position, at most pos + RUN_BYTES_MAX * n. Exact for any int64.
    """
    at, reference = 0, 0
    while at < starts.size:
        kind, length = NONE, 0
        for candidate in range(NONE, CHAINED + 1):
            size = _run_length(ts, starts, at, candidate)
            if size > length:
                kind, length = candidate, size
        pos = put_varint(length << 2 | kind, out, pos)
        if kind == SAME:
            pos = put_varint(zigzag(starts[at] - reference), out, pos)
            reference = starts[at]
        elif kind == APART:
            pos = put_varint(zigzag(ts[at] - starts[at]), out, pos)
        at += length
    return int(pos)


@kernel
def decode_starts_kernel(
    data: NDArray[np.uint8], pos: int, end: int, ts: NDArray[np.int64], starts: NDArray[np.int64]
) -> int:
    """Fill starts (n,) of the samples with the timestamps ts (n,) from data[pos:end]. Returns the new position, which
    is negative for bytes that are not a column."""
    at, reference = 0, 0
    while at < starts.size:
        head, pos = get_varint(data, pos, end)
        kind, length = head & 3, shift_right(head, 2)
        if pos < 0 or length < 1 or length > starts.size - at or (kind == CHAINED and at == 0):
            return -1
        number = 0
        if kind in (SAME, APART):
            number, pos = get_varint(data, pos, end)
            if pos < 0:
                return -1
            number = unzigzag(number)
        if kind == SAME:
            reference += number
        for index in range(at, at + length):
            if kind == NONE:
                starts[index] = ABSENT
            elif kind == SAME:
                starts[index] = reference
            elif kind == APART:
                starts[index] = ts[index] - number
            else:
                starts[index] = ts[index - 1]
        at += length
    return int(pos)


@helper
def _run_length(ts: NDArray[np.int64], starts: NDArray[np.int64], at: int, kind: int) -> int:
    """Samples from `at` on that one run of this kind describes."""
    if kind == CHAINED and at == 0:
        return 0
    index = at
    while index < starts.size:
        if kind == NONE:
            fits = starts[index] == ABSENT
        elif kind == SAME:
            fits = starts[index] == starts[at]
        elif kind == APART:
            fits = ts[index] - starts[index] == ts[at] - starts[at]
        else:
            fits = starts[index] == ts[index - 1]
        if not fits:
            break
        index += 1
    return index - at
