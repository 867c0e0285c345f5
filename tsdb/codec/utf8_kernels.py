"""Checks a byte range for UTF-8. Twin: bytes.decode, which also refuses surrogates and overlong forms."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_u64

_HIGH_BITS = np.uint64(0x8080808080808080)


@helper
def is_utf8(data: NDArray[np.uint8], start: int, end: int) -> bool:
    """Whether data[start:end] is valid UTF-8."""
    at = start
    while at < end:
        if at + 8 <= end and load_u64(data, at) & _HIGH_BITS == np.uint64(0):
            at += 8
            continue
        first = np.int64(data[at])
        if first < 0x80:
            at += 1
            continue
        low, high = np.int64(0x80), np.int64(0xBF)  # Range of the second byte.
        if 0xC2 <= first <= 0xDF:
            more = 1
        elif 0xE0 <= first <= 0xEF:
            more = 2
            low = np.int64(0xA0) if first == 0xE0 else low
            high = np.int64(0x9F) if first == 0xED else high
        elif 0xF0 <= first <= 0xF4:
            more = 3
            low = np.int64(0x90) if first == 0xF0 else low
            high = np.int64(0x8F) if first == 0xF4 else high
        else:
            return False
        if at + more >= end or not low <= data[at + 1] <= high:
            return False
        for position in range(at + 2, at + more + 1):
            if not 0x80 <= data[position] <= 0xBF:
                return False
        at += more + 1
    return True
