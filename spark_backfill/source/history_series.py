"""Past series: finds the series of history that a query reads, with their labels and packs."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from spark_backfill.source.filters import Narrowing
from spark_backfill.source.series_table import SeriesLabels, join_tables
from tsdb.history.interface import ChunkStore
from tsdb.model.window import EPOCH_MS
from tsdb.query.history.index import READERS, Choice, HistoryIndex


@dataclass(frozen=True, slots=True)
class HistoryTable:
    """series: the series to read. pack_ids: their packs, uint64 ascending.

    chosen: the query selects series, so a series outside the table is not in the result; False: the index does not know
    it. start_ms, end_ms: all samples of the series lie in [start_ms, end_ms), the index epochs that have any series.
    """

    series: SeriesLabels
    pack_ids: NDArray[np.uint64]
    chosen: bool
    start_ms: int
    end_ms: int


def history_table(store: ChunkStore, narrowing: Narrowing, log_partitions: int) -> HistoryTable:
    """The table for all index epochs that the narrowing touches. Raises as history and as a selector's matching do."""
    epochs = store.epochs()
    chosen = bool(narrowing.matchers) or narrowing.series_ids is not None
    if not epochs:
        return HistoryTable(join_tables([]), np.empty(0, np.uint64), chosen, 0, 0)
    # The phase of a series shifts its epochs into the past by less than one epoch.
    start_ms, end_ms = (epochs[0] - 1) * EPOCH_MS, (epochs[-1] + 1) * EPOCH_MS
    span = narrowing.span
    first_ms = start_ms if span.start_ms is None else max(span.start_ms, start_ms)
    last_ms = end_ms if span.end_ms is None else min(span.end_ms, end_ms)
    if first_ms >= last_ms:
        return HistoryTable(join_tables([]), np.empty(0, np.uint64), chosen, first_ms, first_ms)
    found = (
        _chosen(store, narrowing, first_ms, last_ms, log_partitions)
        if chosen
        else _all(store, epochs, first_ms, last_ms)
    )
    series = join_tables((part.series_id, part.labels) for part in found)
    packs = np.unique(np.concatenate([np.empty(0, np.uint64), *(part.pack_id for part in found)]))
    if narrowing.series_ids is not None:
        series = series.only(narrowing.series_ids)
    if narrowing.pack_ids is not None:
        packs = np.intersect1d(packs, np.array(sorted(narrowing.pack_ids), np.uint64))
    return HistoryTable(series, packs, chosen, first_ms, last_ms)


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of the table. series_id, labels: distinct series. pack_id: their packs, in any order."""

    series_id: NDArray[np.uint64]
    labels: list[bytes]
    pack_id: NDArray[np.uint64]


def _chosen(store: ChunkStore, narrowing: Narrowing, start_ms: int, end_ms: int, log_partitions: int) -> list[_Part]:
    wanted = dict.fromkeys(range(log_partitions), 0)
    # A query by ids alone may name derived series.
    choice = Choice(narrowing.matchers, derived=not narrowing.matchers)
    found = HistoryIndex(store).find(choice, start_ms, end_ms, {}, wanted).values()
    return [_Part(each.series_ids, each.labels, np.array(each.pack_ids, np.uint64)) for each in found]


def _all(store: ChunkStore, epochs: Sequence[int], start_ms: int, end_ms: int) -> list[_Part]:
    """All series announced for the epochs of a span, derived ones included. Without a search no index is built."""
    # The phase of a series shifts its epochs into the past by less than one epoch.
    touched = [at for at in epochs if (at - 1) * EPOCH_MS < end_ms and start_ms < (at + 1) * EPOCH_MS]
    with ThreadPoolExecutor(READERS, thread_name_prefix="history-series") as readers:
        keys = [(epoch, name) for epoch in touched for name in store.metric_names(epoch)]
        rows = readers.map(lambda one: store.series(*one), keys)
        return [_Part(each.series_id, each.labels, each.pack_id) for each in rows]
