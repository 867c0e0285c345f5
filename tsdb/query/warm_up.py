"""Warm-up: the kernels of reads that span memory and history are compiled or loaded before the first such read."""

from __future__ import annotations

import numpy as np

from tsdb.codec.chunk.chunk import Fragment, decode_chunk, encode_chunk
from tsdb.index.warm_up import warm_up_index
from tsdb.query.history.stretch import Stretch
from tsdb.query.join.seam import NO_SAMPLES, Seam, StoreSamples
from tsdb.query.reduction import Reduction

SAMPLES = 12
WINDOW_MS = 1000


def warm_up() -> None:
    """Join a small history with a small memory, and check the known result."""
    warm_up_index()
    ids = np.array([1, 2], np.uint64)
    half = np.arange(SAMPLES // 2, dtype=np.int64) * 10
    times, starts = np.concatenate([half, half]), np.array([0, SAMPLES // 2, SAMPLES], np.int64)
    # Noise and decimals are encoded differently.
    values = np.concatenate([np.sin(half.astype(np.float64)), half / 10])
    chunk = encode_chunk(Fragment(7, 0, ids, starts, times, values, times + 1), window_ms=WINDOW_MS)
    held = StoreSamples(ids, [b"", b""], np.array([1, 1]), np.array([5, 500]), np.array([1.0, 2.0]), np.array([9, -1]))
    for reduction, samples in ((Reduction(0), 12), (Reduction(0, 10, 2), 12), (Reduction(0, last_n=1), 2)):
        seam = Seam(held, reduction)
        stretch = Stretch(ids, 1, WINDOW_MS)
        stretch.add(decode_chunk(chunk[0]))
        history = stretch.take()
        assert history is not None, "the warm-up found nothing"
        seam.add(history)
        assert seam.result(ids, NO_SAMPLES).samples == samples, "the warm-up lost samples"
