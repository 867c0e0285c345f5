"""These kernels read log records. Layout: docs/formats/log-record.md, versions 1 and 3. Exemplars and sections of
details are found and checked; tsdb.codec.records.exemplar_record and tsdb.codec.columns.details decode them.

Decoding is two passes over a batch: `scan` checks every record and adds up counts, so that `fill` writes into arrays of
the exact size. A count is checked against the record's length before it is used.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c_kernels import crc32c_kernel
from tsdb.codec.jit import helper, kernel
from tsdb.codec.memory_kernels import copy_bytes, load_i64, load_u32
from tsdb.codec.records.exemplar_record_kernels import exemplars_are_sound
from tsdb.codec.records.log_record_kernels import (
    ANY_VERSION_BYTES_MIN,
    BASE_AT,
    CRC_BYTES,
    DELTA_BYTES,
    DELTA_MAX,
    DETAILS_VERSION,
    EXEMPLARS_VERSION,
    FLAG_DETAILS,
    FLAG_EXEMPLARS,
    FLAG_IMPORT_TICK,
    FLAG_SHARED_TIME,
    FLAGS_AT,
    HEADER_BYTES,
    KNOWN_FLAGS,
    LAST_TAG,
    MAGIC,
    PACKS_AT,
    RECORD_BYTES_MAX,
    RESERVED_AT,
    SAMPLES_AT,
    SECTION_HEAD_BYTES,
    VERSION,
    VERSION_AT,
    encoded_size_kernel,
)
from tsdb.codec.records.record_status import STATUS_CORRUPT, STATUS_OK, STATUS_UNKNOWN_VERSION

_I64_MAX = 0x7FFFFFFFFFFFFFFF


@kernel
def scan_records_kernel(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    status: NDArray[np.uint8],
    flags: NDArray[np.uint8],
    pack_start: NDArray[np.int64],
    sample_start: NDArray[np.int64],
) -> int:
    """Set the status of each record i = data[starts[i]:starts[i + 1]], and add up packs and samples. Returns
    FLAG_EXEMPLARS and FLAG_DETAILS where a record has them."""
    pack_start[0] = 0
    sample_start[0] = 0
    found = 0
    for record in range(status.size):
        start = starts[record]
        status[record] = _status_of(data, start, starts[record + 1])
        packs, samples = 0, 0
        flags[record] = 0
        if status[record] == STATUS_OK and data[start + VERSION_AT] == EXEMPLARS_VERSION:
            flags[record] = FLAG_EXEMPLARS
            found |= FLAG_EXEMPLARS
        elif status[record] == STATUS_OK:
            flags[record] = data[start + FLAGS_AT]
            if data[start + VERSION_AT] == DETAILS_VERSION:
                flags[record] |= FLAG_DETAILS
                found |= FLAG_DETAILS
            packs = int(np.int64(load_u32(data, start + PACKS_AT)))
            samples = int(np.int64(load_u32(data, start + SAMPLES_AT)))
        pack_start[record + 1] = pack_start[record] + packs
        sample_start[record + 1] = sample_start[record] + samples
    return found


@helper
def _status_of(data: NDArray[np.uint8], start: int, end: int) -> int:
    if start < 0 or end < start or end > data.size:
        return STATUS_CORRUPT
    size = end - start
    if size < ANY_VERSION_BYTES_MIN or size > RECORD_BYTES_MAX:
        return STATUS_CORRUPT
    if load_u32(data, start) != np.uint32(MAGIC):
        return STATUS_CORRUPT
    if load_u32(data, end - CRC_BYTES) != crc32c_kernel(data, start, end - CRC_BYTES):
        return STATUS_CORRUPT
    # Checked after the checksum, because a damaged version byte is a hole, and only an intact newer record stops the
    # partition.
    if data[start + VERSION_AT] == EXEMPLARS_VERSION:
        return STATUS_OK if exemplars_are_sound(data, start, size) else STATUS_CORRUPT
    if data[start + VERSION_AT] == DETAILS_VERSION:
        return _status_of_details(data, start, size)
    if data[start + VERSION_AT] != VERSION:
        return STATUS_UNKNOWN_VERSION
    return STATUS_OK if size >= HEADER_BYTES + CRC_BYTES and _is_sound(data, start, size) else STATUS_CORRUPT


@helper
def _status_of_details(data: NDArray[np.uint8], start: int, size: int) -> int:
    """Status of a record of version 3 whose checksum holds: sections follow what a record of version 1 has."""
    if size < HEADER_BYTES + CRC_BYTES:
        return STATUS_CORRUPT
    packs = int(np.int64(load_u32(data, start + PACKS_AT)))
    samples = int(np.int64(load_u32(data, start + SAMPLES_AT)))
    shared = np.int64(data[start + FLAGS_AT]) & FLAG_SHARED_TIME != 0
    plain = encoded_size_kernel(packs, samples, shared)
    if samples == 0 or plain >= size or not _is_sound(data, start, plain):
        return STATUS_CORRUPT
    at, end, tag = start + plain - CRC_BYTES, start + size - CRC_BYTES, 0
    while at < end:
        if end - at < SECTION_HEAD_BYTES or data[at] <= tag:
            return STATUS_CORRUPT
        tag = int(data[at])
        length = int(np.int64(load_u32(data, at + 1)))
        if length > end - at - SECTION_HEAD_BYTES:
            return STATUS_CORRUPT
        at += SECTION_HEAD_BYTES + length
    return STATUS_UNKNOWN_VERSION if tag > LAST_TAG else STATUS_OK


@helper
def _is_sound(data: NDArray[np.uint8], start: int, size: int) -> bool:
    """Whether the fields of a record whose checksum holds agree with each other and with its size."""
    flags = np.int64(data[start + FLAGS_AT])
    packs = int(np.int64(load_u32(data, start + PACKS_AT)))
    samples = int(np.int64(load_u32(data, start + SAMPLES_AT)))
    base = load_i64(data, start + BASE_AT)
    if flags & ~KNOWN_FLAGS or data[start + RESERVED_AT] or data[start + RESERVED_AT + 1]:
        return False
    shared = flags & FLAG_SHARED_TIME != 0
    if size != encoded_size_kernel(packs, samples, shared):
        return False
    if samples == 0:
        return packs == 0 and base == 0 and not shared
    if flags & FLAG_IMPORT_TICK or not _lengths_agree(
        data, start + HEADER_BYTES + 16 * (packs + samples), packs, samples
    ):
        return False
    return shared or _times_fit(data, start + size - CRC_BYTES - DELTA_BYTES * samples, samples, base)


@helper
def _lengths_agree(data: NDArray[np.uint8], at: int, packs: int, samples: int) -> bool:
    total = 0
    for pack in range(packs):
        length = int(np.int64(load_u32(data, at + 4 * pack)))
        if length == 0:
            return False
        total += length
    return total == samples


@helper
def _times_fit(data: NDArray[np.uint8], at: int, samples: int, base: int) -> bool:
    if base <= _I64_MAX - DELTA_MAX:
        return True
    newest = np.uint32(0)
    for index in range(samples):
        newest = max(newest, load_u32(data, at + DELTA_BYTES * index))
    return bool(np.int64(newest) <= _I64_MAX - base)


@kernel
def fill_records_kernel(
    data: NDArray[np.uint8],
    starts: NDArray[np.int64],
    pack_start: NDArray[np.int64],
    sample_start: NDArray[np.int64],
    flags: NDArray[np.uint8],
    pack_id: NDArray[np.uint64],
    pack_length: NDArray[np.uint32],
    id_hash: NDArray[np.uint64],
    series_id: NDArray[np.uint64],
    ts_ms: NDArray[np.int64],
    value: NDArray[np.float64],
) -> None:
    """Copy the columns of the records that `scan` passed to where it placed them."""
    for record in range(flags.size):
        pack, packs = pack_start[record], pack_start[record + 1] - pack_start[record]
        sample, samples = sample_start[record], sample_start[record + 1] - sample_start[record]
        if samples == 0:
            continue
        start = starts[record]
        at = start + HEADER_BYTES
        copy_bytes(pack_id, 8 * pack, data, at, 8 * packs)
        copy_bytes(id_hash, 8 * pack, data, at + 8 * packs, 8 * packs)
        at += 16 * packs
        copy_bytes(series_id, 8 * sample, data, at, 8 * samples)
        copy_bytes(value, 8 * sample, data, at + 8 * samples, 8 * samples)
        at += 16 * samples
        copy_bytes(pack_length, 4 * pack, data, at, 4 * packs)
        at += 4 * packs
        base: int = load_i64(data, start + BASE_AT)
        if flags[record] & FLAG_SHARED_TIME:
            ts_ms[sample : sample + samples] = base
        else:
            for index in range(samples):
                ts_ms[sample + index] = base + np.int64(load_u32(data, at + DELTA_BYTES * index))
