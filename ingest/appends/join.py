"""Join: several log records as one, and one record as two. Pure; the records are our own and sound.

The samples of a joined record keep the order of arrival: of one (series, timestamp) the last one wins, as if the
records followed each other. Each pack is named once, its series in the order of their ids. So the parts of a scrape
that came in several requests give the same id vector in whatever order they came.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from ingest.appends.join_kernels import join_records_kernel
from tsdb.codec.records.log_record import DecodedRecords, decode_records, encode_record
from tsdb.codec.records.log_record_kernels import DELTA_BYTES, PACKS_AT, SAMPLES_AT


def join_records(records: Sequence[bytes]) -> bytes:
    """One record with the samples of all, in their order. The caller sees to it that they fit one record."""
    joined = np.frombuffer(b"".join(records), np.uint8)
    # No longer than the records one behind the other, but for the times of records whose samples share one.
    out = np.empty(joined.size + DELTA_BYTES * sum(record_counts(record)[1] for record in records), np.uint8)
    size = join_records_kernel(joined, _starts(records), out)
    assert size > 0, f"records that do not join: {size}"
    return out[:size].tobytes()


def halve_record(record: bytes) -> list[bytes]:
    """The record's first and second half of samples; the record itself when it has one sample."""
    decoded = _decode([record])
    samples = len(decoded.series_id)
    if samples == 1:
        return [record]
    return [_slice(decoded, 0, samples // 2), _slice(decoded, samples // 2, samples)]


def record_counts(record: bytes) -> tuple[int, int]:
    """(packs, samples) of a record."""
    return _count(record, PACKS_AT), _count(record, SAMPLES_AT)


def first_series_id(record: bytes) -> int:
    """Id of the record's first sample."""
    return int(_decode([record]).series_id[0])


def newest_ms(record: bytes) -> int:
    """The latest timestamp in a record."""
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
    return encode_record(
        decoded.pack_id[first : last + 1],
        _lengths(ends),
        decoded.series_id[start:end],
        decoded.ts_ms[start:end],
        decoded.value[start:end],
    )


def _count(record: bytes, at: int) -> int:
    return int.from_bytes(record[at : at + 4], "little")


def _lengths(ends: NDArray[np.int64]) -> NDArray[np.uint32]:
    return np.diff(ends, prepend=0).astype(np.uint32)
