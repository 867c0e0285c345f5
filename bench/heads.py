"""Heads for benches: register W(S) in a head, and make its records as polls, without a log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from bench.workload import INTERVAL_MS, PartitionShare, Workload
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import decode_announcements
from tsdb.head.head import Head
from tsdb.model.time_set import PRODUCTION, slice_lengths


@dataclass(slots=True)
class Poll:
    """Records of one partition, in the form a reader returns."""

    values: bytes
    value_starts: NDArray[np.int64]
    offsets: NDArray[np.int64]
    broker_ms: NDArray[np.int64]


def new_head(partition: int = 0, *, since_offset: int = 0, coverage_start_ms: int = 0) -> Head:
    """An empty head that keeps all samples. With since_offset 0 it covers the log from its start."""
    return Head(
        partition,
        slices=slice_lengths(PRODUCTION.name),
        time_set=PRODUCTION,
        hold_ms=PRODUCTION.least_hold_ms,
        coverage_start_ms=coverage_start_ms,
        since_offset=since_offset,
        from_start=since_offset == 0,
    )


def register(head: Head, workload: Workload, share: PartitionShare, ts_ms: int) -> None:
    """Announce the series of a partition."""
    pairs = list(workload.announcements(share, ts_ms))
    keys, values = b"".join(key for key, _ in pairs), b"".join(value for _, value in pairs)
    records = decode_announcements(
        keys, starts_of([key for key, _ in pairs]), values, starts_of([value for _, value in pairs])
    )
    head.register(records, values, np.full(len(pairs), ts_ms, np.int64))


def polls(
    workload: Workload,
    share: PartitionShare,
    start_ms: int,
    scrapes: int,
    record_samples: int,
    *,
    records_max: int,
    bytes_max: int,
) -> Iterator[Poll]:
    """Polls with all scrapes of a partition from start_ms on, cut by records_max and bytes_max as a reader does."""
    waiting: list[bytes] = []
    times: list[int] = []
    offset = 0
    for column in range(scrapes):
        ts_ms = start_ms + column * INTERVAL_MS
        for record in workload.record(share, ts_ms, column, record_samples):
            waiting.append(record)
            times.append(ts_ms)
            if len(waiting) == records_max or len(waiting) * len(record) >= bytes_max:
                yield _poll(waiting, times, offset)
                offset += len(waiting)
                waiting, times = [], []
    if waiting:
        yield _poll(waiting, times, offset)


def sample_count(records: DecodedRecords) -> int:
    """Number of samples in decoded records."""
    return len(records.value)


def starts_of(parts: Sequence[bytes]) -> NDArray[np.int64]:
    """Start of each part in the concatenation of all parts, and the end of the last one: int64 (n + 1,)."""
    return np.cumsum([0, *map(len, parts)], dtype=np.int64)


def _poll(records: list[bytes], times: list[int], first_offset: int) -> Poll:
    offsets = np.arange(first_offset, first_offset + len(records), dtype=np.int64)
    return Poll(b"".join(records), starts_of(records), offsets, np.array(times, np.int64))
