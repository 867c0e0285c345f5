"""Exemplar record: the exemplars of one append, of series of one partition. Layout: docs/formats/exemplar-record.md.

It is version 2 of the log record: it has the magic and the checksum of all versions, and no samples. `decode_records`
finds these records among the others and decodes them with this module. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.crc32c import crc32c
from tsdb.codec.records.exemplar_record_kernels import (
    COUNT_AT,
    CRC_BYTES,
    EXEMPLAR_BYTES,
    HEADER_BYTES,
    LABELS_SIZE_AT,
    take_labels_kernel,
)
from tsdb.codec.records.log_record_kernels import EXEMPLARS_VERSION, MAGIC, RECORD_BYTES_MAX, VERSION_AT

LABEL_CHARS_MAX = 128  # Characters of all names and values of one exemplar, as in OpenMetrics and Prometheus.
LABEL_BYTES_MAX = 4096  # Above 4 bytes a character and a separator for each of them.


@dataclass(frozen=True, slots=True)
class Exemplars:
    """e exemplars, in the order of the log.

    series_id: uint64 (e,); ts_ms: int64 (e,), ms since the epoch; values: float64 (e,), bit for bit. labels: uint8,
    the label sets joined, each canonical as the labels of a series, or empty; exemplar i has
    labels[label_starts[i]:label_starts[i + 1]]. label_starts: int64 (e + 1,).
    """

    series_id: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    labels: NDArray[np.uint8]
    label_starts: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.series_id)

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return 32 * len(self.series_id) + len(self.labels)

    def labels_of(self, index: int) -> bytes:
        """Canonical labels of one exemplar."""
        return self.labels[self.label_starts[index] : self.label_starts[index + 1]].tobytes()

    def take(self, which: NDArray[np.int64]) -> Exemplars:
        """A copy of some exemplars, in this order."""
        sizes = self.label_starts[1:][which] - self.label_starts[:-1][which]
        starts = np.zeros(len(which) + 1, np.int64)
        np.cumsum(sizes, out=starts[1:])
        labels = np.empty(int(starts[-1]), np.uint8)
        take_labels_kernel(self.labels, self.label_starts, which, starts, labels)
        return Exemplars(self.series_id[which], self.ts_ms[which], self.values[which], labels, starts)


@dataclass(frozen=True, slots=True)
class DecodedExemplars:
    """The exemplars of several records. record: int64 (e,), the index of each exemplar's record, ascending."""

    exemplars: Exemplars
    record: NDArray[np.int64]


def joined_exemplars(parts: Sequence[Exemplars]) -> Exemplars:
    """All exemplars of the parts, one after another."""
    if len(parts) == 1:
        return parts[0]
    sizes = [np.diff(part.label_starts) for part in parts]
    starts = np.zeros(sum(map(len, parts)) + 1, np.int64)
    np.cumsum(np.concatenate([*sizes, np.empty(0, np.int64)]), out=starts[1:])
    return Exemplars(
        np.concatenate([*(part.series_id for part in parts), np.empty(0, np.uint64)]),
        np.concatenate([*(part.ts_ms for part in parts), np.empty(0, np.int64)]),
        np.concatenate([*(part.values for part in parts), np.empty(0, np.float64)]),
        np.concatenate([*(part.labels for part in parts), np.empty(0, np.uint8)]),
        starts,
    )


def encoded_exemplars_size(count: int, label_bytes: int) -> int:
    """Exact bytes of a record."""
    return HEADER_BYTES + EXEMPLAR_BYTES * count + label_bytes + CRC_BYTES


def encode_exemplars(exemplars: Exemplars) -> bytes:
    """The record of at least one exemplar, whose labels have at most LABEL_BYTES_MAX bytes each. The caller splits what
    would have more than RECORD_BYTES_MAX bytes."""
    count, size = len(exemplars), len(exemplars.labels)
    lengths = np.diff(exemplars.label_starts)
    assert count > 0, "a record has an exemplar"
    assert lengths.max() <= LABEL_BYTES_MAX, "labels of an exemplar are checked before"
    assert encoded_exemplars_size(count, size) <= RECORD_BYTES_MAX, "the caller splits a large record"
    body = b"".join(
        (
            MAGIC.to_bytes(4, "little"),
            bytes((EXEMPLARS_VERSION, 0, 0, 0)),
            count.to_bytes(4, "little"),
            size.to_bytes(4, "little"),
            exemplars.series_id.astype("<u8", copy=False).tobytes(),
            exemplars.ts_ms.astype("<i8", copy=False).tobytes(),
            exemplars.values.astype("<f8", copy=False).tobytes(),
            lengths.astype("<u2").tobytes(),
            exemplars.labels.tobytes(),
        )
    )
    return body + crc32c(body).to_bytes(CRC_BYTES, "little")


def is_exemplar_record(record: bytes) -> bool:
    """Whether a record of this program has exemplars."""
    return record[VERSION_AT] == EXEMPLARS_VERSION


def decode_exemplars(data: bytes) -> Exemplars:
    """The exemplars of one record that was found sound."""
    count = int.from_bytes(data[COUNT_AT : COUNT_AT + 4], "little")
    size = int.from_bytes(data[LABELS_SIZE_AT : LABELS_SIZE_AT + 4], "little")
    at = HEADER_BYTES
    starts = np.zeros(count + 1, np.int64)
    np.cumsum(np.frombuffer(data, "<u2", count, at + 24 * count), out=starts[1:])
    return Exemplars(
        np.frombuffer(data, "<u8", count, at),
        np.frombuffer(data, "<i8", count, at + 8 * count),
        np.frombuffer(data, "<f8", count, at + 16 * count),
        np.frombuffer(data, np.uint8, size, at + EXEMPLAR_BYTES * count),
        starts,
    )


def decode_exemplar_records(data: bytes, starts: NDArray[np.int64], records: NDArray[np.int64]) -> DecodedExemplars:
    """The exemplars of the sound records with these indices, which lie in data as `decode_records` has them."""
    parts = [decode_exemplars(data[starts[record] : starts[record + 1]]) for record in records.tolist()]
    return DecodedExemplars(joined_exemplars(parts), np.repeat(records, [len(part) for part in parts]))


def halve_exemplars(record: bytes) -> list[bytes]:
    """The record's first and second half of exemplars; the record itself when it has one."""
    exemplars = decode_exemplars(record)
    count = len(exemplars)
    if count == 1:
        return [record]
    halves = np.arange(count // 2), np.arange(count // 2, count)
    return [encode_exemplars(exemplars.take(half)) for half in halves]
