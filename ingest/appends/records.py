"""Records: cuts the samples of a partition into log records and encodes them. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ingest.appends.records_kernels import encode_ranges_kernel
from ingest.grouping import Grouped
from tsdb.codec.records.log_record import encoded_size


@dataclass(frozen=True, slots=True)
class RecordRange:
    """Samples [start, end) of a Grouped, all of one partition."""

    partition: int
    start: int
    end: int

    @property
    def samples(self) -> int:
        return self.end - self.start

    def halves(self) -> list[RecordRange]:
        """Two ranges, or the range itself when it has one sample."""
        if self.samples == 1:
            return [self]
        middle = (self.start + self.end) // 2
        return [RecordRange(self.partition, self.start, middle), RecordRange(self.partition, middle, self.end)]


@dataclass(frozen=True, slots=True)
class EncodedRecord:
    """A range and its encoded record. newest_ms: the latest timestamp in it."""

    part: RecordRange
    data: bytes
    newest_ms: int


def ranges_by_partition(grouped: Grouped) -> list[RecordRange]:
    """One range for each partition."""
    ends = grouped.partition_end.tolist()
    return [
        RecordRange(partition, start, end)
        for partition, start, end in zip(grouped.partition.tolist(), [0, *ends], ends, strict=False)
    ]


def split(grouped: Grouped, parts: list[RecordRange], bytes_max: int) -> list[RecordRange]:
    """Halve ranges until each record has at most bytes_max bytes, or one sample. Keeps the order."""
    if _bound(grouped, len(parts)) <= bytes_max:  # The usual request: all samples together would fit into one record.
        return parts
    return [small for part in parts for small in _split(grouped, part, bytes_max)]


def encode_ranges(grouped: Grouped, parts: list[RecordRange]) -> list[EncodedRecord]:
    """The log records of the ranges, in their order."""
    count = len(parts)
    out = np.empty(_bound(grouped, count), np.uint8)
    out_end, newest_ms = np.empty(count, np.int64), np.empty(count, np.int64)
    end = encode_ranges_kernel(
        np.array([part.start for part in parts], np.int64),
        np.array([part.end for part in parts], np.int64),
        grouped.pack_id,
        grouped.pack_end,
        grouped.series_id,
        grouped.ts_ms,
        grouped.values,
        np.empty(len(grouped.pack_id), np.uint32),
        out,
        out_end,
        newest_ms,
    )
    assert end > 0, f"ranges that no record holds: {end}"
    ends = out_end.tolist()
    return [
        EncodedRecord(part, out[start:end].tobytes(), newest)
        for part, start, end, newest in zip(parts, [0, *ends], ends, newest_ms.tolist(), strict=False)
    ]


def _split(grouped: Grouped, part: RecordRange, bytes_max: int) -> list[RecordRange]:
    first, last = np.searchsorted(grouped.pack_end, [part.start, part.end - 1], side="right").tolist()
    if part.samples == 1 or encoded_size(last - first + 1, part.samples, shared_ts=False) <= bytes_max:
        return [part]
    return [small for half in part.halves() for small in _split(grouped, half, bytes_max)]


def _bound(grouped: Grouped, records: int) -> int:
    """Upper bound of the bytes of all samples in `records` records. Each cut may put one pack into two records."""
    whole = encoded_size(len(grouped.pack_id) + records, len(grouped.ts_ms), shared_ts=False)
    return whole + records * encoded_size(0, 0, shared_ts=False)
