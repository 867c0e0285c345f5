"""Prometheus's stale marker: the NaN of these bits ends a series."""

from __future__ import annotations

import struct

STALE_BITS = 0x7FF0_0000_0000_0002
STALE: float = struct.unpack("<d", struct.pack("<Q", STALE_BITS))[0]
