"""Grouping: sorts the good samples of a request by partition, then by pack, then by series.

Series of one pack are in the order of their ids, whatever the sender's order. So the records of one scraper repeat the
same id vectors, and readers recognise them by hash. Samples of one (series, timestamp) keep the order of the request.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.grouping_kernels import fill_groups_kernel, order_rows_kernel
from ingest.rows import ResolvedSeries, Rows


@dataclass(frozen=True, slots=True)
class Grouped:
    """n samples, k packs, p partitions, all in log order. A pack lies in one partition.

    series_id: uint64, ts_ms: int64, values: float64 (n,). pack_id: uint64 (k,), pack_end: int64 (k,): pack i has
    samples [pack_end[i - 1], pack_end[i]). partition, partition_end: int64 (p,), likewise.
    """

    series_id: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    pack_id: NDArray[np.uint64]
    pack_end: NDArray[np.int64]
    partition: NDArray[np.int64]
    partition_end: NDArray[np.int64]


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
    )
