"""Log record: the samples of one append, for many packs of one partition. Layout: docs/formats/log-record.md.

All records of a poll decode in one pass over the joined values. Pure, and safe on any thread: no state is kept between
calls. Bad bytes are a status of their record, never an exception, a crash or a large allocation. Details are sections
behind the samples; a record without them has the bytes of version 1.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.columns.details import EncodedDetails, Section, Tag, decode_details
from tsdb.codec.crc32c import crc32c
from tsdb.codec.records import log_record_kernels as kernels
from tsdb.codec.records.exemplar_record import DecodedExemplars, decode_exemplar_records
from tsdb.codec.records.log_record_decode_kernels import fill_records_kernel, scan_records_kernel
from tsdb.codec.records.log_record_kernels import (
    DETAILS_VERSION,
    FLAG_DETAILS,
    FLAG_EXEMPLARS,
    FLAG_IMPORT_TICK,
    FLAG_SHARED_TIME,
    RECORD_BYTES_MAX,
    VERSION,
)
from tsdb.codec.records.record_status import STATUS_CORRUPT, STATUS_OK, STATUS_UNKNOWN_VERSION
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.errors import CorruptData, InvalidRequest

__all__ = [
    "DETAILS_VERSION",
    "FLAG_DETAILS",
    "FLAG_EXEMPLARS",
    "FLAG_IMPORT_TICK",
    "FLAG_SHARED_TIME",
    "RECORD_BYTES_MAX",
    "STATUS_CORRUPT",
    "STATUS_OK",
    "STATUS_UNKNOWN_VERSION",
    "VERSION",
    "DecodedRecords",
    "decode_records",
    "encode_record",
    "encode_tick",
    "encoded_size",
    "id_vector_hash",
]

BUCKET_COUNTS_MAX = 1 << 20
"""Bucket counts of one record. Zeros take few bytes, so this bounds what decoding allocates."""

_SECTION_HEAD = struct.Struct("<BI")


@dataclass(frozen=True, slots=True)
class DecodedRecords:
    """Columns of m records, with K packs and N samples in all. Samples lie in pack order within their record.

    status (m,) uint8: STATUS_*; a record that is not ok has no packs, no samples and no flags. flags (m,) uint8:
    FLAG_*. pack_start, sample_start (m + 1,) int64: record i has packs [pack_start[i], pack_start[i + 1]), samples
    alike. pack_id (K,) uint64; pack_length (K,) uint32, at least 1; id_hash (K,) uint64: as the writer claims, a key
    for caches and never proof of equal ids. series_id (N,) uint64; ts_ms (N,) int64, ms since epoch UTC; value (N,)
    float64, bit for bit. Packs and samples share one block of memory: copy a column to keep it for long.
    exemplars: those of the records with FLAG_EXEMPLARS, which have no samples; None when no record has it.
    details: what samples have beyond a value; None when no record has FLAG_DETAILS.
    """

    status: NDArray[np.uint8]
    flags: NDArray[np.uint8]
    pack_start: NDArray[np.int64]
    sample_start: NDArray[np.int64]
    pack_id: NDArray[np.uint64]
    pack_length: NDArray[np.uint32]
    id_hash: NDArray[np.uint64]
    series_id: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    value: NDArray[np.float64]
    exemplars: DecodedExemplars | None = None
    details: SampleDetails | None = None

    @property
    def all_ok(self) -> bool:
        """Whether every record has STATUS_OK, as nearly always."""
        return not np.count_nonzero(self.status)  # STATUS_OK is 0.


def encode_record(
    pack_ids: NDArray[np.uint64],
    pack_lengths: NDArray[np.uint32],
    series_ids: NDArray[np.uint64],
    ts_ms: NDArray[np.int64],
    values: NDArray[np.float64],
    details: SampleDetails | None = None,
) -> bytes:
    """One record of k packs, whose n >= 1 samples lie in pack order; pack_lengths are positive and sum to n. details:
    those of the samples.

    Raises InvalidRequest: record_too_large above RECORD_BYTES_MAX or BUCKET_COUNTS_MAX, record_time_range when the
    samples lie more than 2^32 - 1 ms (49.7 days) apart. In both cases the caller splits the record.
    """
    packs, samples = pack_ids.size, series_ids.size
    out = np.empty(min(encoded_size(packs, samples, shared_ts=False), RECORD_BYTES_MAX), dtype=np.uint8)
    assert packs == pack_lengths.size, f"{packs} pack ids and {pack_lengths.size} lengths"
    assert samples == ts_ms.size == values.size, f"{samples} ids, {ts_ms.size} times, {values.size} values"
    size = kernels.encode_record_kernel(pack_ids, pack_lengths, 0, packs, series_ids, ts_ms, values, 0, out, 0)
    if size == kernels.TIME_RANGE_TOO_WIDE:
        apart_ms = int(ts_ms.max()) - int(ts_ms.min())
        raise InvalidRequest(
            f"samples of one log record lie {apart_ms} ms apart; limit is {kernels.DELTA_MAX}",
            reason="record_time_range",
        )
    if size == kernels.DOES_NOT_FIT:
        raise InvalidRequest(
            f"log record of {packs} packs and {samples} samples has over {RECORD_BYTES_MAX} bytes",
            reason="record_too_large",
        )
    assert size != kernels.BAD_LENGTHS, "an empty pack or record, or packs of more samples than there are"
    assert size == encoded_size(packs, samples, bool(out[kernels.FLAGS_AT] & FLAG_SHARED_TIME)), "samples in no pack"
    record = out[:size].tobytes()
    return record if details is None else _with_sections(record, details, ts_ms, values)


def _with_sections(
    record: bytes, details: SampleDetails, ts_ms: NDArray[np.int64], values: NDArray[np.float64]
) -> bytes:
    """A record of version 1 extended by the sections of details to version 3. Raises as encode_record."""
    counts = 0 if details.histograms is None else len(details.histograms.buckets)
    if counts > BUCKET_COUNTS_MAX:
        raise InvalidRequest(
            f"log record of {counts} bucket counts; limit is {BUCKET_COUNTS_MAX}", reason="record_too_large"
        )
    out = bytearray(record[: -kernels.CRC_BYTES])
    out[kernels.VERSION_AT] = DETAILS_VERSION
    for tag, data in EncodedDetails(details, ts_ms, values, _one_group(len(ts_ms)), dense=False).sections(0, 1):
        out += _SECTION_HEAD.pack(tag, len(data)) + data
    if len(out) + kernels.CRC_BYTES > RECORD_BYTES_MAX:
        raise InvalidRequest(
            f"log record of {len(ts_ms)} samples and {counts} bucket counts has over {RECORD_BYTES_MAX} bytes",
            reason="record_too_large",
        )
    return bytes(out) + crc32c(bytes(out)).to_bytes(kernels.CRC_BYTES, "little")


def _one_group(samples: int) -> NDArray[np.int64]:
    return np.array([0, samples], np.int64)


def encode_tick(import_tick: bool = False) -> bytes:
    """A record without samples: its broker time moves the watermark; an import's also raises coverage."""
    out = np.empty(encoded_size(0, 0, shared_ts=False), dtype=np.uint8)
    kernels.encode_tick_kernel(FLAG_IMPORT_TICK if import_tick else 0, out)
    return out.tobytes()


def encoded_size(packs: int, samples: int, shared_ts: bool) -> int:
    """Exact bytes of a record. shared_ts: all samples have one timestamp."""
    return (
        kernels.HEADER_BYTES
        + kernels.PACK_BYTES * packs
        + (kernels.SAMPLE_BYTES + (0 if shared_ts else kernels.DELTA_BYTES)) * samples
        + kernels.CRC_BYTES
    )


def decode_records(data: bytes, starts: NDArray[np.int64]) -> DecodedRecords:
    """Decode m records that lie joined in data: record i is data[starts[i]:starts[i + 1]], starts int64 (m + 1,).

    Bad bytes never raise: see DecodedRecords.status. A range outside data is a corrupt record too.
    """
    joined = np.frombuffer(data, dtype=np.uint8)
    records = starts.size - 1
    status, flags = np.empty(records, dtype=np.uint8), np.empty(records, dtype=np.uint8)
    pack_start, sample_start = np.empty(records + 1, dtype=np.int64), np.empty(records + 1, dtype=np.int64)
    found = scan_records_kernel(joined, starts, status, flags, pack_start, sample_start)
    packs, samples = int(pack_start[-1]), int(sample_start[-1])
    pack_id, id_hash, pack_length, series_id, ts_ms, value = _columns(packs, samples)
    decoded = DecodedRecords(
        status=status,
        flags=flags,
        pack_start=pack_start,
        sample_start=sample_start,
        pack_id=pack_id,
        pack_length=pack_length.view(np.uint32)[:packs],
        id_hash=id_hash,
        series_id=series_id,
        ts_ms=ts_ms.view(np.int64),
        value=value.view(np.float64),
        exemplars=_exemplars(data, starts, flags) if found & FLAG_EXEMPLARS else None,
    )
    fill_records_kernel(
        joined,
        starts,
        pack_start,
        sample_start,
        flags,
        decoded.pack_id,
        decoded.pack_length,
        decoded.id_hash,
        decoded.series_id,
        decoded.ts_ms,
        decoded.value,
    )
    return _with_details(data, starts, decoded) if found & FLAG_DETAILS else decoded


def _with_details(data: bytes, starts: NDArray[np.int64], decoded: DecodedRecords) -> DecodedRecords:
    """The records with the details of their samples. One whose sections are bad becomes a corrupt record."""
    parts: list[tuple[int, SampleDetails | None]] = []
    corrupt: list[int] = []
    end = 0
    for record in np.flatnonzero(decoded.flags & FLAG_DETAILS).tolist():
        first, last = decoded.sample_start[record : record + 2].tolist()
        sections = _sections(data[starts[record] : starts[record + 1]])
        ts_ms, value = decoded.ts_ms[first:last], decoded.value[first:last]
        limit = BUCKET_COUNTS_MAX
        try:
            details = decode_details(sections, ts_ms, value, _one_group(last - first), bucket_counts_max=limit)
        except CorruptData:
            corrupt.append(record)
            continue
        parts += [(first - end, None), (last - first, details)]
        end = last
    parts.append((len(decoded.ts_ms) - end, None))
    decoded = replace(decoded, details=joined_details(parts))
    return _without(decoded, corrupt) if corrupt else decoded


def _sections(record: bytes) -> list[Section]:
    """The sections of a record of version 3 that the scan has checked."""
    packs, samples = struct.unpack_from("<II", record, kernels.PACKS_AT)
    shared_ts = bool(record[kernels.FLAGS_AT] & FLAG_SHARED_TIME)
    at = encoded_size(packs, samples, shared_ts) - kernels.CRC_BYTES
    found: list[Section] = []
    while at < len(record) - kernels.CRC_BYTES:
        tag, length = _SECTION_HEAD.unpack_from(record, at)
        at += _SECTION_HEAD.size
        found.append((Tag(tag), record[at : at + length]))
        at += length
    return found


def _without(decoded: DecodedRecords, corrupt: list[int]) -> DecodedRecords:
    """The same records, of which these are corrupt and have no packs and no samples."""
    status, flags = decoded.status.copy(), decoded.flags.copy()
    status[corrupt], flags[corrupt] = STATUS_CORRUPT, 0
    sound = status != STATUS_CORRUPT
    packs, samples = np.diff(decoded.pack_start) * sound, np.diff(decoded.sample_start) * sound
    of_packs = np.repeat(sound, np.diff(decoded.pack_start))
    of_samples = np.repeat(sound, np.diff(decoded.sample_start))
    details = decoded.details
    return replace(
        decoded,
        status=status,
        flags=flags,
        pack_start=_starts_of(packs),
        sample_start=_starts_of(samples),
        pack_id=decoded.pack_id[of_packs],
        pack_length=decoded.pack_length[of_packs],
        id_hash=decoded.id_hash[of_packs],
        series_id=decoded.series_id[of_samples],
        ts_ms=decoded.ts_ms[of_samples],
        value=decoded.value[of_samples],
        details=None if details is None else details.take(np.flatnonzero(of_samples)),
    )


def _starts_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


def _exemplars(data: bytes, starts: NDArray[np.int64], flags: NDArray[np.uint8]) -> DecodedExemplars:
    return decode_exemplar_records(data, starts, np.flatnonzero(flags == FLAG_EXEMPLARS))


def _columns(packs: int, samples: int) -> list[NDArray[np.uint64]]:
    """Columns for pack_id, id_hash, pack_length (two in a word), series_id, ts_ms and value, in one allocation.

    One block is the largest that a poll frees, so malloc learns to keep it. With one block per column malloc returned
    the memory after each poll, and the page faults of the next poll cost three times the decoding.
    """
    words = [packs, packs, (packs + 1) // 2, samples, samples, samples]
    block = np.empty(sum(words), dtype=np.uint64)
    return [block[end - size : end] for size, end in zip(words, accumulate(words), strict=True)]


def id_vector_hash(series_ids: NDArray[np.uint64]) -> int:
    """Hash of the series ids of a pack in their order, unsigned 64 bit. tests/golden/v1/hash_vectors.json has test
    vectors."""
    return int(kernels.id_vector_hash_kernel(series_ids, 0, series_ids.size))
