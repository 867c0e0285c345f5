"""Warm-up: the kernel of chunks is compiled or loaded before the first request."""

from __future__ import annotations

import numpy as np

from tsdb.api.prometheus.remote_read.xor_chunk import xor_chunks
from tsdb.codec.crc32c import crc32c

WANTED = bytes.fromhex("000302000000000000000001c457fe00")


def warm_up() -> None:
    """Encode a small chunk, and check the known result."""
    ((_, _, data),) = xor_chunks(np.array([1, 2, 3]), np.array([0.0, 1.0, 1.0]))
    assert data == WANTED, f"the warm-up encoded {data.hex()}"
    assert crc32c(b"123456789") == 0xE3069283
