"""XOR chunks: encodes the samples of one series as Prometheus does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from tsdb.api.prometheus.remote_read.xor_chunk_kernels import encode_chunk_kernel

CHUNK_SAMPLES = 120  # Prometheus cuts its own chunks at this size.
# A header of 12 bytes, a value, a delta of 10; then at most 68 bits of time and 77 of value for each sample.
CHUNK_BYTES_MAX = 32 + CHUNK_SAMPLES * 19


def xor_chunks(ts_ms: NDArray[np.int64], values: NDArray[np.float64]) -> Iterator[tuple[int, int, bytes]]:
    """(first time, last time, data) of each chunk. ts_ms: strictly increasing."""
    out = np.empty(CHUNK_BYTES_MAX, np.uint8)
    bits = values.view(np.int64)
    for first in range(0, len(ts_ms), CHUNK_SAMPLES):
        part = slice(first, min(first + CHUNK_SAMPLES, len(ts_ms)))
        size = encode_chunk_kernel(ts_ms[part], bits[part], out)
        yield int(ts_ms[part.start]), int(ts_ms[part.stop - 1]), out[:size].tobytes()
