"""CRC-32C (Castagnoli), the checksum of all formats: reflected polynomial 0x82f63b78, all ones at both ends."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c_kernels import crc32c_kernel


def crc32c(data: bytes | NDArray[np.uint8]) -> int:
    """CRC-32C of bytes or a contiguous uint8 array, unsigned. `crc32c(b"123456789") == 0xe3069283` (RFC 3720)."""
    view = np.frombuffer(data, dtype=np.uint8)
    return int(crc32c_kernel(view, 0, view.size))
