"""Kernels of the series record: one checks a batch of announcements and finds their fields, one writes a batch.

Layout: docs/formats/series-record.md, version 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c_kernels import crc32c_extend_kernel, crc32c_kernel
from tsdb.codec.jit import helper, kernel, short_kernel
from tsdb.codec.memory_kernels import copy_bytes, load_u32, load_u64, store_u32, store_u64
from tsdb.codec.records.record_status import STATUS_CORRUPT, STATUS_OK, STATUS_UNKNOWN_VERSION

VERSION = 1
SERIES_ID_AT = 0
EPOCH_AT = 8
KEY_BYTES = 12
VERSION_AT = 0
PACK_ID_AT = 1
LABELS_AT = 9
CRC_BYTES = 4
ANY_VERSION_BYTES_MIN = 1 + CRC_BYTES
SEPARATOR = 0xFF


@kernel
def decode_announcements_kernel(
    keys: NDArray[np.uint8],
    key_starts: NDArray[np.int64],
    values: NDArray[np.uint8],
    value_starts: NDArray[np.int64],
    status: NDArray[np.uint8],
    series_id: NDArray[np.uint64],
    epoch: NDArray[np.int32],
    pack_id: NDArray[np.uint64],
    label_start: NDArray[np.int64],
    label_end: NDArray[np.int64],
) -> None:
    """Decode record i of keys[key_starts[i]:key_starts[i + 1]] and its value for every i; all 0 where not ok."""
    for record in range(status.size):
        key, start, end = key_starts[record], value_starts[record], value_starts[record + 1]
        status[record] = _status_of(keys, key, key_starts[record + 1], values, start, end)
        series_id[record], epoch[record], pack_id[record] = np.uint64(0), np.int32(0), np.uint64(0)
        label_start[record], label_end[record] = 0, 0
        if status[record] == STATUS_OK:
            series_id[record] = load_u64(keys, key + SERIES_ID_AT)
            epoch[record] = np.int32(load_u32(keys, key + EPOCH_AT))
            pack_id[record] = load_u64(values, start + PACK_ID_AT)
            label_start[record], label_end[record] = start + LABELS_AT, end - CRC_BYTES


@short_kernel
def announcement_status_kernel(key: NDArray[np.uint8], value: NDArray[np.uint8]) -> int:
    """STATUS_* of one record."""
    return _status_of(key, 0, key.size, value, 0, value.size)


@helper
def _status_of(keys: NDArray[np.uint8], key: int, key_end: int, values: NDArray[np.uint8], start: int, end: int) -> int:
    if key < 0 or key_end < key or key_end > keys.size:
        return STATUS_CORRUPT
    if start < 0 or end < start or end > values.size or end - start < ANY_VERSION_BYTES_MIN:
        return STATUS_CORRUPT
    crc = crc32c_extend_kernel(crc32c_kernel(keys, key, key_end), values, start, end - CRC_BYTES)
    if load_u32(values, end - CRC_BYTES) != crc:
        return STATUS_CORRUPT
    # Checked after the checksum, as in the log record, because only an intact newer record has an unknown version.
    if values[start + VERSION_AT] != VERSION:
        return STATUS_UNKNOWN_VERSION
    if key_end - key != KEY_BYTES or not _are_pairs(values, start + LABELS_AT, end - CRC_BYTES):
        return STATUS_CORRUPT
    return STATUS_OK


@helper
def _are_pairs(values: NDArray[np.uint8], start: int, end: int) -> bool:
    """Whether labels are names and values in turn: an odd number of separators."""
    odd = False
    for position in range(start, end):
        if values[position] == SEPARATOR:
            odd = not odd
    return odd


@kernel
def encode_announcements_kernel(
    series_id: NDArray[np.uint64],
    epoch: NDArray[np.int64],
    pack_id: NDArray[np.uint64],
    labels: NDArray[np.uint8],
    label_starts: NDArray[np.int64],
    which: NDArray[np.int64],
    keys: NDArray[np.uint8],
    values: NDArray[np.uint8],
    value_starts: NDArray[np.int64],
) -> None:
    """Write record i, of label set which[i]: keys[KEY_BYTES * i:] and values[value_starts[i]:value_starts[i + 1]]."""
    end = 0
    value_starts[0] = 0
    for record in range(series_id.size):
        key, start = record * KEY_BYTES, end
        store_u64(keys, key + SERIES_ID_AT, series_id[record])
        store_u32(keys, key + EPOCH_AT, np.uint32(epoch[record]))
        values[start + VERSION_AT] = VERSION
        store_u64(values, start + PACK_ID_AT, pack_id[record])
        first, last = label_starts[which[record]], label_starts[which[record] + 1]
        copy_bytes(values, start + LABELS_AT, labels, first, last - first)
        end = start + LABELS_AT + last - first
        crc = crc32c_extend_kernel(crc32c_kernel(keys, key, key + KEY_BYTES), values, start, end)
        store_u32(values, end, np.uint32(crc))
        end += CRC_BYTES
        value_starts[record + 1] = end
