"""Series record: encodes the announcement of one series in one index epoch, for the `series` topic.

Layout: docs/formats/series-record.md. Announcements are repeated and compacted; equal announcements have equal bytes.
Pure.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c import crc32c
from tsdb.codec.records.record_status import STATUS_OK, STATUS_UNKNOWN_VERSION
from tsdb.codec.records.series_record_kernels import (
    CRC_BYTES,
    KEY_BYTES,
    LABELS_AT,
    VERSION,
    VERSION_AT,
    announcement_status_kernel,
    decode_announcements_kernel,
    encode_announcements_kernel,
)
from tsdb.model.errors import CorruptData, InvalidRequest, UnknownVersion

__all__ = [
    "VERSION",
    "Announcement",
    "DecodedAnnouncements",
    "decode_announcement",
    "decode_announcements",
    "encode_announcement",
    "encode_announcements",
]

_KEY = struct.Struct("<Qi")  # Series id and index epoch.
_VALUE = struct.Struct("<BQ")  # Version and pack_id; the labels and the checksum follow.
_CRC = struct.Struct("<I")
_EPOCH_LIMIT = 1 << 31


@dataclass(frozen=True, slots=True)
class Announcement:
    """A series and its labels in one index epoch. Ids are unsigned 64 bit; canonical: canonical labels."""

    series_id: int
    epoch: int
    pack_id: int
    canonical: bytes


@dataclass(frozen=True, slots=True)
class DecodedAnnouncements:
    """Columns of m announcements. status (m,) uint8: STATUS_*; all other fields of a record that is not ok are 0.

    series_id, pack_id (m,) uint64; epoch (m,) int32; the canonical labels of record i are
    values[label_start[i]:label_end[i]] of the joined values that were decoded, int64.
    """

    status: NDArray[np.uint8]
    series_id: NDArray[np.uint64]
    epoch: NDArray[np.int32]
    pack_id: NDArray[np.uint64]
    label_start: NDArray[np.int64]
    label_end: NDArray[np.int64]

    def part(self, first: int, end: int) -> DecodedAnnouncements:
        """The announcements [first, end); arrays are shared."""
        return DecodedAnnouncements(
            self.status[first:end],
            self.series_id[first:end],
            self.epoch[first:end],
            self.pack_id[first:end],
            self.label_start[first:end],
            self.label_end[first:end],
        )


def encode_announcement(series_id: int, epoch: int, pack_id: int, canonical: bytes) -> tuple[bytes, bytes]:
    """Key and value. Raises InvalidRequest (epoch_out_of_range) for an epoch beyond 32 bits: 176 million years."""
    if not -_EPOCH_LIMIT <= epoch < _EPOCH_LIMIT:
        raise InvalidRequest(f"index epoch {epoch} does not fit 32 bits", reason="epoch_out_of_range")
    key = _KEY.pack(series_id, epoch)
    body = _VALUE.pack(VERSION, pack_id) + canonical
    return key, body + _CRC.pack(crc32c(key + body))


def encode_announcements(
    series_id: NDArray[np.uint64],
    epoch: NDArray[np.int64],
    pack_id: NDArray[np.uint64],
    labels: NDArray[np.uint8],
    label_starts: NDArray[np.int64],
    which: NDArray[np.int64],
) -> list[tuple[bytes, bytes]]:
    """Key and value of each announcement. Announcement i has the canonical labels at index which[i] of the joined
    labels.

    Raises InvalidRequest as encode_announcement does.

    """
    count = len(series_id)
    if count and not (epoch.min() >= -_EPOCH_LIMIT and epoch.max() < _EPOCH_LIMIT):
        raise InvalidRequest(f"an index epoch of {epoch} does not fit 32 bits", reason="epoch_out_of_range")
    size = int((label_starts[which + 1] - label_starts[which]).sum()) + count * (LABELS_AT + CRC_BYTES)
    keys, values = np.empty(count * KEY_BYTES, np.uint8), np.empty(size, np.uint8)
    starts = np.empty(count + 1, np.int64)
    encode_announcements_kernel(series_id, epoch, pack_id, labels, label_starts, which, keys, values, starts)
    key, value, ends = keys.tobytes(), values.tobytes(), starts.tolist()
    return [(key[at * KEY_BYTES : (at + 1) * KEY_BYTES], value[ends[at] : ends[at + 1]]) for at in range(count)]


def decode_announcement(key: bytes, value: bytes) -> Announcement:
    """One announcement. Raises CorruptData, or UnknownVersion for an undamaged record of a newer version."""
    status = announcement_status_kernel(np.frombuffer(key, np.uint8), np.frombuffer(value, np.uint8))
    if status == STATUS_UNKNOWN_VERSION:
        raise UnknownVersion(f"series record is of version {value[VERSION_AT]}; this process knows up to {VERSION}")
    if status != STATUS_OK:
        raise CorruptData(f"series record with a key of {len(key)} and a value of {len(value)} bytes breaks its format")
    series_id, epoch = _KEY.unpack(key)
    _, pack_id = _VALUE.unpack_from(value)
    return Announcement(series_id, epoch, pack_id, value[LABELS_AT:-CRC_BYTES])


def decode_announcements(
    keys: bytes, key_starts: NDArray[np.int64], values: bytes, value_starts: NDArray[np.int64]
) -> DecodedAnnouncements:
    """Decode m announcements that lie joined: record i has key keys[key_starts[i]:key_starts[i + 1]], its value alike.

    Bad bytes never raise: see DecodedAnnouncements.status. A null record is corrupt.
    """
    records = key_starts.size - 1
    assert value_starts.size == key_starts.size, f"{records} keys and {value_starts.size - 1} values"
    decoded = DecodedAnnouncements(
        status=np.empty(records, dtype=np.uint8),
        series_id=np.empty(records, dtype=np.uint64),
        epoch=np.empty(records, dtype=np.int32),
        pack_id=np.empty(records, dtype=np.uint64),
        label_start=np.empty(records, dtype=np.int64),
        label_end=np.empty(records, dtype=np.int64),
    )
    decode_announcements_kernel(
        np.frombuffer(keys, dtype=np.uint8),
        key_starts,
        np.frombuffer(values, dtype=np.uint8),
        value_starts,
        decoded.status,
        decoded.series_id,
        decoded.epoch,
        decoded.pack_id,
        decoded.label_start,
        decoded.label_end,
    )
    return decoded
