"""Source hash: a 32-bit hash of a placement, kept in place of its text.

The seed is random in each process, so that a sender cannot choose a placement with the hash of another source.
"""

from __future__ import annotations

import os

import xxhash

_SEED = int.from_bytes(os.urandom(8), "little")


def source_hash(placement: bytes) -> int:
    """Unsigned, 32 bit; comparable within one process."""
    return xxhash.xxh3_64_intdigest(placement, _SEED) >> 32
