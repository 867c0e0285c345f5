"""This kernel decodes the samples of one chunk of native histograms, after its layout.

A position is a number of bits, as in `xor_kernels`, BROKEN where the bytes end too early.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from spark_backfill.jobs.imports.prometheus.xor_kernels import BROKEN, bits_at, uvarint_at, value_at, varbit_at
from tsdb.codec.jit import kernel
from tsdb.model.stale import STALE_BITS

NO_STARTS = -1
_STALE = np.uint64(STALE_BITS)
NUMBER_BITS = (3, 6, 9, 12, 18, 25, 56, 64)  # Bits of a number, by the ones before it less one.
_SUM = 2  # A sample has the numbers count, zero count, sum, and then its buckets.


@kernel
def decode_histograms_kernel(
    data: NDArray[np.uint8],
    place: int,
    end: int,
    is_float: bool,
    starts_header: int,
    positive: int,
    ts_ms: NDArray[np.int64],
    start_ms: NDArray[np.int64],
    numbers: NDArray[np.uint64],
    widths: NDArray[np.int64],
    buckets: NDArray[np.uint64],
    state: NDArray[np.uint64],
) -> int:
    """Decode the samples from the bit `place` on, up to the byte `end`. Returns the number of bucket counts, or BROKEN.

    ts_ms, start_ms, widths: (n,) for n samples. numbers: (3 n,), count, zero count and sum of each, as integers or bits
    of floats. buckets: own counts, as these; a stale marker has none. It has space for every bit of the chunk, and a
    count takes at least one. positive: number of positive buckets. starts_header: third byte of the chunk, or
    NO_STARTS. state: zeros, 4 w for w numbers of a sample: values, changes, leading and trailing zeros.
    """
    last = end * 8
    size = state.size // 4
    values, changes = state[:size], state[size : 2 * size]
    leading, trailing = state[2 * size : 3 * size], state[3 * size :]
    time, interval, written = np.int64(0), np.int64(0), 0
    start, start_gap = np.int64(0), np.int64(0)
    first_change = starts_header & 0x7F if starts_header >= 0 else 0
    for n in range(ts_ms.size):
        before_ms = time
        change, place = varbit_at(data, place, last, NUMBER_BITS, True)
        if place == BROKEN:
            return BROKEN
        if n == 0:
            time = change
        else:
            interval += change
            time += interval
        is_stale = False
        for at in range(size):
            if at > _SUM and is_stale and n > 0:
                break
            if n == 0:
                if is_float or at == _SUM:
                    if place + 64 > last:
                        return BROKEN
                    values[at] = bits_at(data, place, 64)
                    place += 64
                else:
                    number, place = varbit_at(data, place, last, NUMBER_BITS, at > _SUM)
                    values[at] = np.uint64(number)
            elif is_float or at == _SUM:
                lead, trail = np.int64(leading[at]), np.int64(trailing[at])
                found = value_at(data, place, last, values[at], lead, trail)  # type: ignore[arg-type]  # numba's int
                place = found[3]
                values[at], leading[at], trailing[at] = found[0], np.uint64(found[1]), np.uint64(found[2])
            else:
                number, place = varbit_at(data, place, last, NUMBER_BITS, True)
                changes[at] += np.uint64(number)
                values[at] += changes[at]
            if place == BROKEN:
                return BROKEN
            if at == _SUM:
                is_stale = values[_SUM] == _STALE
        if starts_header >= 0:
            if n == 0:
                if starts_header & 0x80:
                    code, place = uvarint_at(data, place, last)
                    start_gap = np.int64(code >> np.uint64(1)) ^ -np.int64(code & np.uint64(1))
                    start = time - start_gap
            elif first_change > 0 and n >= first_change:
                number, place = varbit_at(data, place, last, NUMBER_BITS, True)
                start_gap = number if n == first_change else start_gap + number
                start = before_ms - start_gap
            if place == BROKEN:
                return BROKEN
        ts_ms[n], start_ms[n] = time, start
        for at in range(3):
            numbers[3 * n + at] = values[at]
        widths[n] = 0 if is_stale else size - 3
        if is_stale:
            continue
        count = np.int64(0)
        for at in range(_SUM + 1, size):
            if is_float:
                buckets[written] = values[at]
            else:
                if at == _SUM + 1 + positive:
                    count = np.int64(0)
                count += np.int64(values[at])
                buckets[written] = np.uint64(count)
            written += 1
    return written
