"""murmur2 of a byte range, as Kafka's Java client computes it. Twin: tsdb.model.partitioner.murmur2."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.jit import helper
from tsdb.codec.memory_kernels import load_u32

_SEED, _M, _MASK = np.uint64(0x9747B28C), np.uint64(0x5BD1E995), np.uint64(0xFFFFFFFF)
_8, _13, _15, _24 = np.uint64(8), np.uint64(13), np.uint64(15), np.uint64(24)


@helper
def murmur2(data: NDArray[np.uint8], start: int, end: int) -> np.uint64:
    """The murmur2 hash of data[start:end], 32 bits, unsigned."""
    h = _SEED ^ np.uint64(end - start)
    at = start
    while at + 4 <= end:
        k = np.uint64(load_u32(data, at)) * _M & _MASK
        k = (k ^ k >> _24) * _M & _MASK
        h = (h * _M & _MASK) ^ k
        at += 4
    if at < end:
        tail = np.uint64(0)
        for position in range(end - 1, at - 1, -1):
            tail = tail << _8 | np.uint64(data[position])
        h = (h ^ tail) * _M & _MASK
    h = (h ^ h >> _13) * _M & _MASK
    return h ^ h >> _15
