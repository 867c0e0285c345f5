"""Warm-up: compiles or loads the kernels that check a chunk and an announcement before the first record."""

from __future__ import annotations

import numpy as np

from tsdb.codec.chunk.chunk import Fragment, decode_chunk, encode_chunk
from tsdb.codec.records.series_record import decode_announcement, encode_announcement

SAMPLES = 12
WINDOW_MS = 1000


def warm_up() -> None:
    """Encode and decode a small chunk and a small announcement."""
    times = np.arange(SAMPLES, dtype=np.int64) * 10
    ids, starts = np.array([1], np.uint64), np.array([0, SAMPLES], np.int64)
    # Noise and decimals: each takes another path through the encoder.
    for values in (np.sin(times.astype(np.float64)), times / 10):
        (value,) = encode_chunk(Fragment(7, 0, ids, starts, times, values, times + 1), window_ms=WINDOW_MS)
        assert decode_chunk(value).samples == SAMPLES, "the warm-up lost samples"
    decode_announcement(*encode_announcement(1, 0, 7, b"__name__\xffx"))
