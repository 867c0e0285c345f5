"""History storage: PromQL's Storage over history, as it is without the chunks of one run of this job.

A task reads whole windows and keeps what it has decoded, because many rules select the same series.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.chunk.key import Kind
from tsdb.history.interface import (
    ChunkStore,
    HistoryHole,
    HistoryRow,
    Loaded,
    SeriesIndexRows,
    WantedSeries,
    WindowRange,
)
from tsdb.model.details import SampleDetails, joined_details
from tsdb.model.errors import CorruptData, Overloaded
from tsdb.model.selector import Matcher
from tsdb.model.window import ceil_to, floor_to
from tsdb.promql.evaluate.storage import StoredSeries
from tsdb.query.history.index import Choice, HistoryIndex, HistorySeries
from tsdb.query.history.samples import HistoryQuery, history_samples
from tsdb.query.promql.storage import NO_SERIES, valid_matchers
from tsdb.rules.backfill import SAMPLES_LIMIT

SAMPLES_MAX = 32 << 20  # Samples of one selection: 16 bytes each, and the same again while it is joined.
KEPT_SAMPLES_MAX = 16 << 20  # Samples of all selections that a task remembers.

Key = tuple[tuple[Matcher, ...], int, int]


class HistoryStorage:
    """Implements Storage for one task. orders: by partition, the order of the run's chunks, which are left out. Series
    come by partition and series id, as from a querier, so that sums have the same order of terms.

    samples_max: bound of one selection; a larger one raises Overloaded (samples_limit).
    """

    def __init__(
        self,
        history: ChunkStore,
        topic_id: str,
        orders: Mapping[int, int],
        window_ms: int,
        samples_max: int = SAMPLES_MAX,
    ) -> None:
        self._history = history
        self._orders = orders
        self._window_ms = window_ms
        self._samples_max = samples_max
        self._index = HistoryIndex(history)
        # History has all records below the ticks, so a part of the index that was read once stays valid.
        self._loaded = {number: Loaded(topic_id, number, order, 0) for number, order in orders.items()}
        self._kept: OrderedDict[Key, StoredSeries] = OrderedDict()
        self._kept_samples = 0

    def select(self, matchers: Sequence[Matcher], start_ms: int, end_ms: int) -> StoredSeries:
        """Implements Storage.select. Raises Overloaded (samples_limit), CorruptData, and the errors of history."""
        valid = valid_matchers(matchers)
        if valid is None or start_ms > end_ms:
            return NO_SERIES
        windows = floor_to(start_ms, self._window_ms), ceil_to(end_ms + 1, self._window_ms)
        key = tuple(valid), *windows
        found = self._kept.get(key)
        if found is None:
            found = self._kept[key] = self._read(*key)
            self._kept_samples += len(found.ts_ms)
        self._kept.move_to_end(key)
        while self._kept_samples > KEPT_SAMPLES_MAX and len(self._kept) > 1:
            _, oldest = self._kept.popitem(last=False)
            self._kept_samples -= len(oldest.ts_ms)
        return found.within(start_ms, end_ms)

    def _read(self, matchers: tuple[Matcher, ...], start_ms: int, end_ms: int) -> StoredSeries:
        found = self._index.find(Choice(matchers), start_ms, end_ms, self._loaded, self._orders)
        labels: list[bytes] = []
        counts: list[NDArray[np.int64]] = []
        times: list[NDArray[np.int64]] = []
        values: list[NDArray[np.float64]] = []
        details: list[tuple[int, SampleDetails | None]] = []
        for partition, series in sorted(found.items()):
            samples = sum(map(len, times))
            for one, canonical, part in self._of_partition(partition, series, start_ms, end_ms, samples):
                labels.append(canonical)
                counts.append(np.array([part.stop - part.start], np.int64))
                times.append(one.ts_ms[part])
                values.append(one.value[part])
                own = one.details
                details.append((part.stop - part.start, own and own.part(part.start, part.stop)))
        if not labels:
            return NO_SERIES
        starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(np.concatenate(counts))])
        found_details = joined_details(details)
        return StoredSeries(labels, starts, np.concatenate(times), np.concatenate(values), (), found_details)

    def _of_partition(
        self, partition: int, series: HistorySeries, start_ms: int, end_ms: int, before: int
    ) -> Iterator[tuple[Fragment, bytes, slice]]:
        """The samples of each series with any, ascending by id. before: number of samples that are there already."""

        def check(samples: int) -> None:
            if before + samples > self._samples_max:
                raise Overloaded(
                    f"over {self._samples_max} samples of one selector in [{start_ms}, {end_ms}) ms: narrow it",
                    reason=SAMPLES_LIMIT,
                    limit=self._samples_max,
                )

        query = HistoryQuery(
            series.pack_ids,
            series.series_ids,
            series.labels,
            max(start_ms, series.start_ms),
            min(end_ms, series.end_ms),
        )
        if not len(series.series_ids) or query.start_ms >= query.end_ms:
            return
        rows = _WithoutRun(self._history, self._orders[partition])
        found: list[tuple[int, Fragment, int]] = []
        for fragment in history_samples(rows, query, self._window_ms, _raise, check):
            before += fragment.samples
            check(0)
            found += [(number, fragment, row) for row, number in enumerate(fragment.series_id.tolist())]
        labels = dict(zip(series.series_ids.tolist(), series.labels, strict=True))
        for number, fragment, row in sorted(found, key=lambda one: one[0]):
            part = slice(int(fragment.sample_start[row]), int(fragment.sample_start[row + 1]))
            yield fragment, labels[number], part


def _raise(row: HistoryRow, error: CorruptData) -> None:
    raise error


class _WithoutRun:
    """HistoryReads without the chunks of imports from an order on: what this run wrote, and what came later."""

    def __init__(self, history: ChunkStore, order: int) -> None:
        self._history = history
        self._order = order

    def read(
        self, pack_ids: Sequence[int], windows: WindowRange, wanted: WantedSeries
    ) -> Iterator[Sequence[HistoryRow]]:
        for rows in self._history.read(pack_ids, windows, wanted):
            kept = [row for row in rows if row.key.kind != Kind.IMPORT or row.key.order < self._order]
            if kept:
                yield kept

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        return self._history.loaded(topic_id)

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]:
        return self._history.holes(partitions, start_ms, end_ms)

    def metric_names(self, epoch: int) -> list[bytes]:
        return self._history.metric_names(epoch)

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        return self._history.series(epoch, name)
