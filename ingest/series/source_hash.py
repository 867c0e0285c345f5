"""Source hash: 32 bits that stand for a placement where no text is kept.

The seed is this process's own, so that a sender cannot choose placements that share a hash with another source's.
"""

from __future__ import annotations

import os

import xxhash

_SEED = int.from_bytes(os.urandom(8), "little")


def source_hash(placement: bytes) -> int:
    """Unsigned, 32 bit; comparable within one process."""
    return xxhash.xxh3_64_intdigest(placement, _SEED) >> 32
