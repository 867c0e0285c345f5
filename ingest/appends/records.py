"""Records: brings the good samples of a request into the order of the log, cuts those of a partition into log records
and encodes them; joins several log records to one, and splits one into two. Pure; the records are our own and sound.

Samples are sorted by partition, then by pack, then by series. Series of one pack are in the order of their ids,
whatever the sender's order. So the records of one scraper repeat the same id vectors, and readers recognise them by
hash. Samples of one (series, timestamp) keep the order of the request.

The samples of a joined record keep the order of arrival: of one (series, timestamp) the last one wins, as if the
records followed each other. Each pack is named once, its series in the order of their ids. So the parts of a scrape
that came in several requests give the same id vector in whatever order they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from struct import Struct

import numpy as np
from numpy.typing import NDArray

from ingest.appends.records_kernels import (
    encode_ranges_kernel,
    fill_groups_kernel,
    join_records_kernel,
    order_rows_kernel,
)
from ingest.rows import ResolvedSeries, Rows
from tsdb.codec.records.exemplar_record import decode_exemplars, halve_exemplars, is_exemplar_record
from tsdb.codec.records.exemplar_record_kernels import COUNT_AT
from tsdb.codec.records.log_record import DecodedRecords, decode_records, encode_record, encoded_size
from tsdb.codec.records.log_record_kernels import (
    DELTA_BYTES,
    DETAILS_VERSION,
    PACK_BYTES,
    PACKS_AT,
    SAMPLE_BYTES,
    SAMPLES_AT,
    VERSION_AT,
)
from tsdb.model.arrays import csr_places
from tsdb.model.details import SampleDetails
from tsdb.model.errors import InvalidRequest

_EMPTY_BYTES = encoded_size(0, 0, shared_ts=False)
NO_TIME_MS = int(np.iinfo(np.int64).min)
TOO_LARGE = "record_too_large"
_COUNT = Struct("<I")  # Number of packs or samples in a record.


@dataclass(frozen=True, slots=True)
class Grouped:
    """n samples, k packs, p partitions, all in log order. A pack lies in one partition.

    series_id: uint64, ts_ms: int64, values: float64 (n,). pack_id: uint64 (k,), pack_end: int64 (k,): pack i has
    samples [pack_end[i - 1], pack_end[i]). partition, partition_end: int64 (p,), likewise. details: those of the
    samples, None where no sample has any.
    """

    series_id: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    pack_id: NDArray[np.uint64]
    pack_end: NDArray[np.int64]
    partition: NDArray[np.int64]
    partition_end: NDArray[np.int64]
    details: SampleDetails | None = None


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
    """A range of samples and its encoded record. newest_ms: the latest timestamp of the range."""

    part: RecordRange
    data: bytes
    newest_ms: int


def group(rows: Rows, series: ResolvedSeries, good: NDArray[np.bool_]) -> Grouped:
    """Sort and copy the good rows. Pure."""
    count = len(good)
    order = np.empty(count, np.int64)
    kept = order_rows_kernel(good, series.partition, series.pack_id, series.series_id, order, np.empty(count, np.int64))
    order = order[:kept]
    samples = rows.samples if kept == count else int((rows.starts[order + 1] - rows.starts[order]).sum())
    series_id, ts_ms = np.empty(samples, np.uint64), np.empty(samples, np.int64)
    bits = np.empty(samples, np.uint64)  # Values are copied as integers: a float copy may change a signalling NaN.
    pack_id, pack_end = np.empty(kept, np.uint64), np.empty(kept, np.int64)
    partition, partition_end = np.empty(kept, np.int64), np.empty(kept, np.int64)
    packs, partitions = fill_groups_kernel(
        order,
        rows.starts,
        series.partition,
        series.pack_id,
        series.series_id,
        rows.ts_ms,
        rows.values.view(np.uint64),
        series_id,
        ts_ms,
        bits,
        pack_id,
        pack_end,
        partition,
        partition_end,
    )
    return Grouped(
        series_id,
        ts_ms,
        bits.view(np.float64),
        pack_id[:packs],
        pack_end[:packs],
        partition[:partitions],
        partition_end[:partitions],
        rows.details.take(csr_places(rows.starts, order)[0]) if rows.details is not None else None,
    )


def encode_grouped(grouped: Grouped, bytes_max: int) -> list[EncodedRecord]:
    """The log records of the samples, in their order: each has at most bytes_max bytes, or one sample."""
    parts = split(grouped, ranges_by_partition(grouped), bytes_max)
    if grouped.details is None:
        return encode_ranges(grouped, parts)
    return [record for part in parts for record in _encode_detailed(grouped, part, bytes_max)]


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


def _encode_detailed(grouped: Grouped, part: RecordRange, bytes_max: int) -> list[EncodedRecord]:
    """The records of a range, as `encode_grouped` makes them. The bytes of details are known once they are encoded."""
    data = _encode_range(grouped, part)
    if data is not None and (len(data) <= bytes_max or part.samples == 1):
        return [EncodedRecord(part, data, int(grouped.ts_ms[part.start : part.end].max()))]
    return [record for half in part.halves() for record in _encode_detailed(grouped, half, bytes_max)]


def _encode_range(grouped: Grouped, part: RecordRange) -> bytes | None:
    """The record of a range; None for samples that no record holds."""
    assert grouped.details is not None, "the caller has checked"
    samples = slice(part.start, part.end)
    first, last = np.searchsorted(grouped.pack_end, [part.start, part.end - 1], side="right").tolist()
    try:
        return _encode(
            grouped.pack_id[first : last + 1],
            np.minimum(grouped.pack_end[first : last + 1], part.end) - part.start,
            grouped.series_id[samples],
            grouped.ts_ms[samples],
            grouped.values[samples],
            grouped.details.part(part.start, part.end),
        )
    except InvalidRequest as error:
        if error.reason != TOO_LARGE or part.samples == 1:
            raise
        return None


def _bound(grouped: Grouped, records: int) -> int:
    """Upper bound of the bytes of all samples in `records` records. Each cut may put one pack into two records."""
    packs, samples = len(grouped.pack_id) + records, len(grouped.ts_ms)
    return (records + 1) * _EMPTY_BYTES + packs * PACK_BYTES + samples * (SAMPLE_BYTES + DELTA_BYTES)


def join_records(records: Sequence[bytes]) -> bytes:
    """One record with the samples of all records, in their order. The caller checks that the samples fit one record.

    Raises InvalidRequest (record_too_large) where their details do not fit.
    """
    if any(record[VERSION_AT] == DETAILS_VERSION for record in records):
        return _join_detailed(records)
    joined = np.frombuffer(b"".join(records), np.uint8)
    # Never longer than the records behind each other, except for the times of records whose samples share one time.
    out = np.empty(joined.size + DELTA_BYTES * sum(record_counts(record)[1] for record in records), np.uint8)
    size = join_records_kernel(joined, _starts(records), out)
    assert size > 0, f"records that do not join: {size}"
    return out[:size].tobytes()


def _join_detailed(records: Sequence[bytes]) -> bytes:
    decoded = _decode(records)
    pack_id = np.repeat(decoded.pack_id, decoded.pack_length)
    order = np.lexsort((decoded.series_id, pack_id))
    packs, first = np.unique(pack_id[order], return_index=True)
    return _encode(
        packs,
        np.append(first[1:], len(order)),
        decoded.series_id[order],
        decoded.ts_ms[order],
        decoded.value.view(np.uint64)[order].view(np.float64),
        None if decoded.details is None else decoded.details.take(order),
    )


def halve_record(record: bytes) -> list[bytes]:
    """The record's first and second half of samples, or of exemplars; the record itself when it has one."""
    if is_exemplar_record(record):
        return halve_exemplars(record)
    decoded = _decode([record])
    samples = len(decoded.series_id)
    if samples == 1:
        return [record]
    return [_slice(decoded, 0, samples // 2), _slice(decoded, samples // 2, samples)]


def record_counts(record: bytes) -> tuple[int, int]:
    """(packs, samples) of a record; of one with exemplars 0 and their number."""
    if is_exemplar_record(record):
        return 0, _COUNT.unpack_from(record, COUNT_AT)[0]
    return _COUNT.unpack_from(record, PACKS_AT)[0], _COUNT.unpack_from(record, SAMPLES_AT)[0]


def first_series_id(record: bytes) -> int:
    """Id of the record's first sample or exemplar."""
    if is_exemplar_record(record):
        return int(decode_exemplars(record).series_id[0])
    return int(_decode([record]).series_id[0])


def newest_ms(record: bytes) -> int:
    """The latest timestamp in a record. The time of an exemplar is compared with no clock: then it is the lowest of
    all."""
    if is_exemplar_record(record):
        return NO_TIME_MS
    return int(_decode([record]).ts_ms.max())


def _decode(records: Sequence[bytes]) -> DecodedRecords:
    decoded = decode_records(b"".join(records), _starts(records))
    assert decoded.all_ok, "a record of this gateway is not sound"
    return decoded


def _starts(records: Sequence[bytes]) -> NDArray[np.int64]:
    return np.fromiter(accumulate(map(len, records), initial=0), np.int64, len(records) + 1)


def _slice(decoded: DecodedRecords, start: int, end: int) -> bytes:
    """Samples [start, end) of one decoded record."""
    pack_ends = np.cumsum(decoded.pack_length, dtype=np.int64)
    first, last = np.searchsorted(pack_ends, [start, end - 1], side="right").tolist()
    ends = np.minimum(pack_ends[first : last + 1], end) - start
    return _encode(
        decoded.pack_id[first : last + 1],
        ends,
        decoded.series_id[start:end],
        decoded.ts_ms[start:end],
        decoded.value[start:end],
        None if decoded.details is None else decoded.details.part(start, end),
    )


def _encode(
    pack_id: NDArray[np.uint64],
    pack_end: NDArray[np.int64],
    series_id: NDArray[np.uint64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    details: SampleDetails | None,
) -> bytes:
    """A record of samples in pack order. Raises InvalidRequest (record_too_large)."""
    return encode_record(pack_id, np.diff(pack_end, prepend=0).astype(np.uint32), series_id, ts_ms, values, details)
