"""Layout of the log record and the kernels that write it. Document: docs/formats/log-record.md, versions 1 and 3.

Its reader is log_record_decode_kernels.py.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c_kernels import crc32c_kernel
from tsdb.codec.jit import helper, short_kernel
from tsdb.codec.memory_kernels import copy_bytes, store_i64, store_u32, store_u64

MAGIC = 0x524C544B  # "KTLR" as a little-endian u32.
VERSION = 1
EXEMPLARS_VERSION = 2  # docs/formats/exemplar-record.md
DETAILS_VERSION = 3  # A record of version 1 whose samples have details, which are sections behind it.
SECTION_HEAD_BYTES = 5  # Tag u8, length u32.
LAST_TAG = 2  # Of the sections that this process knows, docs/formats/details.md.
RECORD_BYTES_MAX = 1 << 20

FLAG_SHARED_TIME = 1
FLAG_IMPORT_TICK = 2
KNOWN_FLAGS = FLAG_SHARED_TIME | FLAG_IMPORT_TICK
FLAG_EXEMPLARS = 4  # Marks a decoded record of exemplars; no record has it in its bytes.
FLAG_DETAILS = 8  # Marks a decoded record whose samples have details; no record has it in its bytes.

VERSION_AT = 4
FLAGS_AT = 5
RESERVED_AT = 6
PACKS_AT = 8
SAMPLES_AT = 12
BASE_AT = 16
HEADER_BYTES = 24
CRC_BYTES = 4
ANY_VERSION_BYTES_MIN = FLAGS_AT + CRC_BYTES
PACK_BYTES = 20  # id u64, id-vector hash u64, length u32.
SAMPLE_BYTES = 16  # Series id u64 and value f64; a time delta adds DELTA_BYTES.
DELTA_BYTES = 4
DELTA_MAX = 0xFFFFFFFF  # Milliseconds. The oldest and the newest sample of a record are at most 49.7 days apart.

TIME_RANGE_TOO_WIDE = -1
DOES_NOT_FIT = -2
BAD_LENGTHS = -3

# Odd constants of xxHash64. Any others would do, but these are frozen in tests/golden.
_HASH_A = np.uint64(0x9E3779B185EBCA87)
_HASH_B = np.uint64(0xC2B2AE3D27D4EB4F)
_HASH_C = np.uint64(0x165667B19E3779F9)


@short_kernel
def id_vector_hash_kernel(series_id: NDArray[np.uint64], start: int, end: int) -> np.uint64:
    """Hash of series_id[start:end] in order: a sum of mixed words, so that no step waits for the one before."""
    total = np.uint64(0)
    salt = np.uint64(0)
    for index in range(start, end):
        salt += _HASH_B
        word = (series_id[index] ^ salt) * _HASH_A
        word ^= word >> np.uint64(32)
        total += word * _HASH_C
    total ^= np.uint64(end - start)
    total ^= total >> np.uint64(29)
    total *= _HASH_A
    return np.uint64(total ^ (total >> np.uint64(32)))


@helper
def encoded_size_kernel(packs: int, samples: int, shared_time: bool) -> int:
    """Exact number of bytes of a record."""
    return (
        HEADER_BYTES + PACK_BYTES * packs + (SAMPLE_BYTES + (0 if shared_time else DELTA_BYTES)) * samples + CRC_BYTES
    )


@short_kernel
def encode_record_kernel(
    pack_id: NDArray[np.uint64],
    pack_length: NDArray[np.uint32],
    pack_start: int,
    pack_end: int,
    series_id: NDArray[np.uint64],
    ts_ms: NDArray[np.int64],
    value: NDArray[np.float64],
    sample_start: int,
    out: NDArray[np.uint8],
    position: int,
) -> int:
    """Write packs [pack_start, pack_end), whose samples begin at sample_start, as one record at out[position:].

    Returns the position after it, else with nothing written TIME_RANGE_TOO_WIDE, DOES_NOT_FIT (in out, or in
    RECORD_BYTES_MAX), or BAD_LENGTHS (no pack, an empty one, or more samples than there are: a bug of the caller).
    """
    samples = int(_samples_of(pack_length, pack_start, pack_end))
    sample_end = sample_start + samples
    if samples == 0 or sample_end > min(series_id.size, ts_ms.size, value.size):
        return BAD_LENGTHS
    base, newest = ts_ms[sample_start], ts_ms[sample_start]
    for index in range(sample_start, sample_end):
        base, newest = min(base, ts_ms[index]), max(newest, ts_ms[index])
    # The difference of two int64 fits a uint64, whatever they are.
    if np.uint64(newest) - np.uint64(base) > np.uint64(DELTA_MAX):
        return TIME_RANGE_TOO_WIDE
    shared = base == newest
    packs = pack_end - pack_start
    size = encoded_size_kernel(packs, samples, shared)
    if size > RECORD_BYTES_MAX or position + size > out.size:
        return DOES_NOT_FIT
    _write_header(out, position, FLAG_SHARED_TIME if shared else 0, packs, samples, base)
    at = _write_packs(out, position + HEADER_BYTES, pack_id, pack_length, pack_start, pack_end, series_id, sample_start)
    copy_bytes(out, at, series_id, 8 * sample_start, 8 * samples)
    copy_bytes(out, at + 8 * samples, value, 8 * sample_start, 8 * samples)
    at += 16 * samples
    for pack in range(pack_start, pack_end):
        store_u32(out, at, pack_length[pack])
        at += 4
    if not shared:
        for index in range(sample_start, sample_end):
            store_u32(out, at, np.uint32(ts_ms[index] - base))
            at += DELTA_BYTES
    store_u32(out, at, crc32c_kernel(out, position, at))
    return at + CRC_BYTES


@short_kernel
def encode_tick_kernel(flags: int, out: NDArray[np.uint8]) -> int:
    """Write a record without samples at out[0:]; returns its size."""
    _write_header(out, 0, flags, 0, 0, 0)
    store_u32(out, HEADER_BYTES, crc32c_kernel(out, 0, HEADER_BYTES))
    return HEADER_BYTES + CRC_BYTES


@helper
def _samples_of(pack_length: NDArray[np.uint32], pack_start: int, pack_end: int) -> np.int64:
    """Number of samples of packs [pack_start, pack_end); 0 if one of them is empty."""
    samples = np.int64(0)
    for pack in range(pack_start, pack_end):
        if pack_length[pack] == 0:
            return np.int64(0)
        samples += np.int64(pack_length[pack])
    return samples


@helper
def _write_header(out: NDArray[np.uint8], at: int, flags: int, packs: int, samples: int, base: int) -> None:
    store_u32(out, at, np.uint32(MAGIC))
    out[at + VERSION_AT] = VERSION
    out[at + FLAGS_AT] = flags
    out[at + RESERVED_AT] = 0
    out[at + RESERVED_AT + 1] = 0
    store_u32(out, at + PACKS_AT, np.uint32(packs))
    store_u32(out, at + SAMPLES_AT, np.uint32(samples))
    store_i64(out, at + BASE_AT, base)


@helper
def _write_packs(
    out: NDArray[np.uint8],
    at: int,
    pack_id: NDArray[np.uint64],
    pack_length: NDArray[np.uint32],
    pack_start: int,
    pack_end: int,
    series_id: NDArray[np.uint64],
    sample_start: int,
) -> int:
    packs = pack_end - pack_start
    copy_bytes(out, at, pack_id, 8 * pack_start, 8 * packs)
    at += 8 * packs
    for pack in range(pack_start, pack_end):
        sample_end = sample_start + pack_length[pack]
        store_u64(out, at, id_vector_hash_kernel(series_id, sample_start, sample_end))
        sample_start = sample_end
        at += 8
    return at
