"""Parts of decoded batches: cuts out a range of their records or a selection of their samples. Pure; columns are shared
if possible."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.log_record import FLAG_IMPORT_TICK, DecodedRecords


def part(records: DecodedRecords, first: int, last: int) -> DecodedRecords:
    """The records [first, last); the batch itself when the range covers all of it."""
    if first == 0 and last == len(records.status):
        return records
    packs, samples = records.pack_start[first : last + 1], records.sample_start[first : last + 1]
    of_packs, of_samples = slice(int(packs[0]), int(packs[-1])), slice(int(samples[0]), int(samples[-1]))
    return DecodedRecords(
        status=records.status[first:last],
        flags=records.flags[first:last],
        pack_start=packs - packs[0],
        sample_start=samples - samples[0],
        pack_id=records.pack_id[of_packs],
        pack_length=records.pack_length[of_packs],
        id_hash=records.id_hash[of_packs],
        series_id=records.series_id[of_samples],
        ts_ms=records.ts_ms[of_samples],
        value=records.value[of_samples],
        details=None if records.details is None else records.details.part(of_samples.start, of_samples.stop),
    )


def with_samples(records: DecodedRecords, keep: NDArray[np.bool_]) -> DecodedRecords:
    """All records with only the samples where keep (n,) is true. Packs without samples are left out."""
    pack_of = np.repeat(np.arange(len(records.pack_id)), records.pack_length)
    lengths = np.bincount(pack_of[keep], minlength=len(records.pack_id)).astype(np.uint32)
    held = lengths > 0
    return DecodedRecords(
        status=records.status,
        flags=records.flags,
        pack_start=_before(held)[records.pack_start],
        sample_start=_before(keep)[records.sample_start],
        pack_id=records.pack_id[held],
        pack_length=lengths[held],
        id_hash=records.id_hash[held],
        series_id=records.series_id[keep],
        ts_ms=records.ts_ms[keep],
        value=records.value[keep],
        details=None if records.details is None else records.details.take(np.flatnonzero(keep)),
    )


def without_import_ticks(records: DecodedRecords) -> DecodedRecords:
    """The records without the flag of import ticks: a head drops slices at such a tick, and their samples may not be
    emitted yet."""
    if not (records.flags & FLAG_IMPORT_TICK).any():
        return records
    return replace(records, flags=records.flags & ~np.uint8(FLAG_IMPORT_TICK))


def record_of(records: DecodedRecords, samples: NDArray[np.int64]) -> NDArray[np.int64]:
    """Index of the record of each sample. samples: indexes of samples in the batch."""
    return np.searchsorted(records.sample_start, samples, side="right") - 1


def _before(kept: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number of true elements before each index, (n + 1,)."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(kept, dtype=np.int64)])
