"""Kernels that decode the XOR encoding: the timestamps of one chunk, and its values as bits. After Gorilla (VLDB 2015).

A position is a number of bits from the first byte on. It is BROKEN where the bytes end too early. Nothing is read at or
past `last`.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper, kernel

BROKEN = -1
COUNT_BYTES = 2
_TIME_BITS = (14, 17, 20, 64)  # Size of a change of the interval, by the number of ones before the zero.


@kernel
def decode_xor_kernel(
    data: NDArray[np.uint8], at: int, end: int, ts_ms: NDArray[np.int64], bits: NDArray[np.uint64]
) -> int:
    """Decode the samples of data[at:end] into ts_ms and bits, which have 65,535 entries. Returns the number of samples,
    or BROKEN."""
    if end - at < COUNT_BYTES:
        return BROKEN
    count = (np.int64(data[at]) << 8) | np.int64(data[at + 1])
    place, last = (at + COUNT_BYTES) * 8, end * 8
    time, interval, value = np.int64(0), np.int64(0), np.uint64(0)
    leading, trailing = 0, 0
    for n in range(count):
        if n == 0:
            number, place = uvarint_at(data, place, last)
            time = np.int64(number >> np.uint64(1)) ^ -np.int64(number & np.uint64(1))
            if place == BROKEN or place + 64 > last:
                return BROKEN
            value = bits_at(data, place, 64)
            place += 64
        else:
            if n == 1:
                number, place = uvarint_at(data, place, last)
                interval = np.int64(number)
            else:
                change, place = varbit_at(data, place, last, _TIME_BITS, True)
                interval += change
            if place == BROKEN:
                return BROKEN
            time += interval
            value, leading, trailing, place = value_at(data, place, last, value, leading, trailing)
            if place == BROKEN:
                return BROKEN
        ts_ms[n], bits[n] = time, value
    return int(count)


@helper
def uvarint_at(data: NDArray[np.uint8], place: int, last: int) -> tuple[np.uint64, int]:
    """A number in little-endian groups of 7 bits. Returns (number, position behind it)."""
    number = np.uint64(0)
    for shift in range(0, 64, 7):
        if place + 8 > last:
            break
        byte = bits_at(data, place, 8)
        place += 8
        number |= (byte & np.uint64(0x7F)) << np.uint64(shift)
        if byte < np.uint64(0x80):
            return number, place
    return np.uint64(0), BROKEN


@helper
def varbit_at(
    data: NDArray[np.uint8], place: int, last: int, sizes: tuple[int, ...], is_signed: bool
) -> tuple[np.int64, int]:
    """Read (number, position behind it): ones, at most as many as there are sizes, which say how many bits follow."""
    ones = 0
    while ones < len(sizes):
        if place >= last:
            return np.int64(0), BROKEN
        place += 1
        if bits_at(data, place - 1, 1) == np.uint64(0):
            break
        ones += 1
    if ones == 0:
        return np.int64(0), place
    size = sizes[ones - 1]
    if place + size > last:
        return np.int64(0), BROKEN
    number = np.int64(bits_at(data, place, size))
    # Half of the range is the highest positive number, not the lowest negative one.
    if is_signed and size < 64 and number > np.int64(1) << np.int64(size - 1):
        number -= np.int64(1) << np.int64(size)
    return number, place + size


@helper
def value_at(
    data: NDArray[np.uint8], place: int, last: int, value: np.uint64, leading: int, trailing: int
) -> tuple[np.uint64, int, int, int]:
    """Read (value, leading and trailing zeros of its difference, position behind it), given those of the value
    before."""
    if place >= last:
        return value, leading, trailing, BROKEN
    place += 1
    if bits_at(data, place - 1, 1) == np.uint64(0):
        return value, leading, trailing, place
    if place >= last:
        return value, leading, trailing, BROKEN
    place += 1
    if bits_at(data, place - 1, 1) == np.uint64(1):
        if place + 11 > last:
            return value, leading, trailing, BROKEN
        leading = _number_at(data, place, 5)
        size = _number_at(data, place + 5, 6)
        place += 11
        trailing = 64 - leading - (size if size else 64)
    size = 64 - leading - trailing
    if trailing < 0 or place + size > last:
        return value, leading, trailing, BROKEN
    value ^= bits_at(data, place, size) << np.uint64(trailing)
    return value, leading, trailing, place + size


@helper
def _number_at(data: NDArray[np.uint8], place: int, size: int) -> int:
    """Does what bits_at does, for numbers to count with. numba's int() keeps a uint64, and an int64 added to it
    gives a float."""
    return np.int64(bits_at(data, place, size))  # type: ignore[return-value]  # numba's int is this


@helper
def bits_at(data: NDArray[np.uint8], place: int, size: int) -> np.uint64:
    """The next `size` bits, 1 to 64, most significant first. The caller has checked that they exist."""
    found, taken = np.uint64(0), 0
    while taken < size:
        free = 8 - (place & 7)
        use = min(free, size - taken)
        part = (np.uint64(data[place >> 3]) >> np.uint64(free - use)) & np.uint64((1 << use) - 1)
        found = (found << np.uint64(use)) | part
        place += use
        taken += use
    return found
