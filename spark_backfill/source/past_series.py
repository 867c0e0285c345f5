"""Past series: which series a query of history wants, with their labels and packs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_backfill.source.filters import Narrowing
from spark_backfill.source.series_table import SeriesTable, joined
from tsdb.history.interface import ChunkStore
from tsdb.model.window import EPOCH_MS
from tsdb.query.past_index import Choice, PastIndex


@dataclass(frozen=True, slots=True)
class PastTable:
    """series: those wanted. pack_ids: of them, uint64 ascending. chosen: others are not wanted, rather than unknown.

    No sample of them lies outside [start_ms, end_ms), the index epochs in which there is any series.
    """

    series: SeriesTable
    pack_ids: NDArray[np.uint64]
    chosen: bool
    start_ms: int
    end_ms: int


def past_table(store: ChunkStore, narrowing: Narrowing, log_partitions: int) -> PastTable:
    """Of all epochs that the narrowing touches. Raises as history does, and for what no selector may ask."""
    epochs = store.epochs()
    chosen = bool(narrowing.matchers) or narrowing.series_ids is not None
    if not epochs:
        return PastTable(joined([]), np.empty(0, np.uint64), chosen, 0, 0)
    # The phase of a series moves its epochs back by less than one.
    start_ms, end_ms = (epochs[0] - 1) * EPOCH_MS, (epochs[-1] + 1) * EPOCH_MS
    span = narrowing.span
    first_ms = start_ms if span.start_ms is None else max(span.start_ms, start_ms)
    last_ms = end_ms if span.end_ms is None else min(span.end_ms, end_ms)
    if first_ms >= last_ms:
        return PastTable(joined([]), np.empty(0, np.uint64), chosen, first_ms, first_ms)
    wanted = dict.fromkeys(range(log_partitions), 0)
    # A read of everything meets chunks of derived series as well.
    choice = Choice(narrowing.matchers, derived=not narrowing.matchers)
    found = list(PastIndex(store).find(choice, first_ms, last_ms, {}, wanted).values())
    series = joined((part.series_ids, part.labels) for part in found)
    packs = np.unique(np.array([pack for part in found for pack in part.pack_ids], np.uint64))
    if narrowing.series_ids is not None:
        series = series.only(narrowing.series_ids)
    if narrowing.pack_ids is not None:
        packs = np.intersect1d(packs, np.array(sorted(narrowing.pack_ids), np.uint64))
    return PastTable(series, packs, chosen, first_ms, last_ms)
