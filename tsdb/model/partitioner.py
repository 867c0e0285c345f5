"""Partitioner: placement to partition, as Kafka's own Java client computes it for a key.

Pinned here, with frozen vectors in tests/golden, because client libraries differ in their default hash.
Source: murmur2 (Austin Appleby) with Kafka's seed, org.apache.kafka.common.utils.Utils.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """32-bit murmur2 of bytes, unsigned."""
    length = len(data)
    h = (_SEED ^ length) & _MASK
    whole = length & ~3
    for start in range(0, whole, 4):
        k = (int.from_bytes(data[start : start + 4], "little") * _M) & _MASK
        k = ((k ^ (k >> 24)) * _M) & _MASK
        h = ((h * _M) & _MASK) ^ k
    if length > whole:
        h = ((h ^ int.from_bytes(data[whole:], "little")) * _M) & _MASK
    h = ((h ^ (h >> 13)) * _M) & _MASK
    return h ^ (h >> 15)


def partition_of(placement: bytes, partitions: int) -> int:
    """Partition of a placement: (murmur2 & 0x7fffffff) % partitions."""
    return (murmur2(placement) & 0x7FFFFFFF) % partitions
