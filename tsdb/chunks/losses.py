"""Losses: the records and samples of a batch that cannot be emitted, as holes. The rules are those of a head's
holes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.head.head import Head
from tsdb.head.holes import corrupt_holes, unknown_holes
from tsdb.head.slices.rows import IGNORED_REF
from tsdb.head.state import Hole
from tsdb.index.series_table_kernels import NO_REF
from tsdb.model.time_set import TimeSet


def corrupt_losses(
    records: DecodedRecords,
    offsets: NDArray[np.int64],
    broker_ms: NDArray[np.int64],
    times: TimeSet,
    partition: int,
) -> list[HoleRecord]:
    """A hole for each corrupt record."""
    return _named(corrupt_holes(records, 0, len(records.status), offsets, broker_ms, times), partition)


def unknown_losses(
    records: DecodedRecords,
    head: Head,
    offsets: NDArray[np.int64],
    broker_ms: NDArray[np.int64],
    times: TimeSet,
    partition: int,
) -> list[HoleRecord]:
    """A hole for each pack with samples of unknown series. Samples too far ahead are ignored and make no hole."""
    refs = head.index.table.find(records.series_id)
    latest_ms = np.repeat(broker_ms + times.ahead_ms, np.diff(records.sample_start))
    refs[(refs == NO_REF) & (records.ts_ms > latest_ms)] = IGNORED_REF
    return _named(unknown_holes(records, 0, len(records.status), refs, offsets), partition)


def _named(holes: list[Hole], partition: int) -> list[HoleRecord]:
    return [
        HoleRecord(partition, hole.pack_id, hole.start_ms, hole.end_ms, hole.reason, hole.record_offset)
        for hole in holes
    ]
