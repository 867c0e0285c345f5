"""Process hash: xxh3-64 with a random seed of this process, so that a sender cannot choose inputs with equal hashes.

Sources and series are compared by it within the process; it is never written.
"""

from __future__ import annotations

import os

import xxhash

from tsdb.codec.xxh3_kernels import long_secret

SEED = int.from_bytes(os.urandom(8), "little")
PLAIN_SECRET, SEEDED_SECRET = long_secret(0), long_secret(SEED)


def source_hash(placement: bytes) -> int:
    """Hash of a placement, kept in place of its text; unsigned, 32 bit."""
    return xxhash.xxh3_64_intdigest(placement, SEED) >> 32


def check_hash(canonical: bytes) -> int:
    """Hash of canonical labels beside their series id; unsigned, 64 bit."""
    return xxhash.xxh3_64_intdigest(canonical, SEED)
