"""Series rows: what a store's rows of series become."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from tsdb.history.interface import SeriesRows


def series_rows(rows: Iterable[tuple[int, int, int, bytes]]) -> SeriesRows:
    """From (series_id, pack_id, partition, labels), ids signed, in any order."""
    ids: list[int] = []
    packs: list[int] = []
    partitions: list[int] = []
    labels: list[bytes] = []
    for series_id, pack_id, partition, canonical in rows:
        ids.append(series_id)
        packs.append(pack_id)
        partitions.append(partition)
        labels.append(canonical)
    series_ids = np.array(ids, np.int64).view(np.uint64)
    order = np.argsort(series_ids)
    return SeriesRows(
        series_ids[order],
        np.array(packs, np.int64).view(np.uint64)[order],
        np.array(partitions, np.int32)[order],
        [labels[at] for at in order.tolist()],
    )
