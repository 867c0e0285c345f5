"""Source `history`: reads each sample once, with the value of the highest order.

A full read is split by token ranges, a narrowed read by packs. Each task opens history itself, reads the labels of its
series, and decodes one window of one pack at a time. With a log too, a read goes on where history ends (seam.py).
Without one, a range that history does not hold whole is refused.

It finds the series of history that a query reads, with their labels and packs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql.datasource import InputPartition

from spark_backfill.failures import quoted_errors
from spark_backfill.source.filters import Narrowing
from spark_backfill.source.late import LatePart, LateSeries, decoded, late_parts, late_series, read_late
from spark_backfill.source.log import newest_parts
from spark_backfill.source.log_samples import LogQuery, OffsetsPart, labelled, read_part
from spark_backfill.source.narrowed import NarrowedReader, is_empty_plan
from spark_backfill.source.options import TimeSpan
from spark_backfill.source.rows import record_batches
from spark_backfill.source.runs import SampleRuns, gathered, run_batches
from spark_backfill.source.seam import check_loaded, seam_of
from spark_backfill.source.series_table import LabelText, SeriesLabels
from spark_backfill.worker_log import worker_log
from tsdb.history.interface import ChunkRow, ChunkStore, RowSplit, WindowRange
from tsdb.history.merge import merge
from tsdb.history.open import open_history_admin
from tsdb.history.shared_settings import HINT
from tsdb.model.errors import ConfigMismatch, HoleInRange, Unavailable
from tsdb.model.window import EPOCH_MS, TS_MS_MAX, TS_MS_MIN
from tsdb.query.history.index import READERS, Choice, HistoryIndex

EVER = TimeSpan(TS_MS_MIN, TS_MS_MAX)
OR_PARTIAL = "or read what is loaded with the option partial=true"
ENDS_EARLIER = f"end the range there (end_ms), add the option log for what is newer, {OR_PARTIAL}"
RUNS_END_EARLIER = f"end the range there (end_ms), read samples in place of runs, {OR_PARTIAL}"
HOLES_SHOWN = 3


# Parts carry the results of planning: Spark serialises the reader for tasks before it calls `partitions`.
@dataclass
class TokensPart(InputPartition):
    """All packs of the token range (after, through]. log_partitions: the number of partitions of the log. late: series
    that other parts read."""

    log_partitions: int
    after: int
    through: int
    late: LateSeries | None = None


@dataclass
class PacksPart(InputPartition):
    """Packs (bytes of a uint64 array) in windows of [start_ms, end_ms). log_partitions: the number of partitions of the
    log."""

    log_partitions: int
    pack_ids: bytes
    start_ms: int
    end_ms: int
    late: LateSeries | None = None


class HistoryReader(NarrowedReader):
    """Reader that plans by token ranges, and by packs when the query is narrowed."""

    def partitions(self) -> list[InputPartition]:
        """Input partitions. Raises ConfigMismatch (history_schema), HoleInRange (hole), Unavailable (history_behind),
        OutOfCoverage (before_retention), and the errors of late_series."""
        with quoted_errors(), self._options.places.open_history() as store:
            log_partitions, window_ms = self._shared()
            if not self._options.allow_holes:
                self._check_holes(store)
            # `loaded` is read before any chunk: a sample that is loaded later is in the log's part, or in both.
            late, of_log = self._beyond(store, log_partitions)
            if self._reads_all:
                ranges = store.row_splits(self._options.splits_of(store.chunk_bytes()))
                return [*(TokensPart(log_partitions, part.after, part.through, late) for part in ranges), *of_log]
            return [*self._pack_parts(store, log_partitions, window_ms, late), *of_log]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if is_empty_plan(partition):
            return
        if isinstance(partition, OffsetsPart | LatePart):
            yield from self._read_log(partition)
            return
        assert isinstance(partition, TokensPart | PacksPart), f"no part of ours: {partition}"
        with quoted_errors(), self._options.places.open_history() as store:
            table = self._table(store, partition.log_partitions) if self._needs_table else None
            windows = _windows(self._pieces(store, partition))
            for runs in gathered(merge([decoded(row) for row in rows]) for rows in windows):
                wanted = self._wanted(runs if partition.late is None else partition.late.without(runs), table)
                yield from self._batches(wanted, table.series if table else None)

    def _read_log(self, part: OffsetsPart | LatePart) -> Iterator[pa.RecordBatch]:
        options = self._options
        query = LogQuery(self._columns, self._narrowing, options.allow_holes, options.labels_bytes_max)
        records = part.records if isinstance(part, LatePart) else part
        with quoted_errors():
            log = worker_log(options.places, records.topic_id)
            if isinstance(part, OffsetsPart):
                yield from read_part(log, part, query)
                return
            with options.places.open_history() as store:
                found = read_late(log, store, part, self._narrowing, options.allow_holes)
                yield from labelled(log, records.partition, found, query)

    # The driver runs these.

    def _beyond(self, store: ChunkStore, log_partitions: int) -> tuple[LateSeries | None, list[InputPartition]]:
        """Series that history's tasks leave out, and the parts of the log that has them and all newer samples."""
        options, span = self._options, self._narrowing.span
        if options.partial:
            return None, []
        if not options.places.log:
            check_loaded(store, None, log_partitions, span, ENDS_EARLIER)
            return None, []
        with options.places.open_log() as log:
            if self._columns.runs:
                check_loaded(store, log, log_partitions, span, RUNS_END_EARLIER)
                return None, []
            seam = seam_of(store, log, span, allow_holes=options.allow_holes)
            late = late_parts(seam)
            found = late_series(log, seam, late, self._narrowing, options.allow_holes)
        each = max(options.splits // log_partitions, 1)
        recent: list[InputPartition] = []
        if span.end_ms is None or span.end_ms > seam.from_ms:
            recent += newest_parts(seam.topic_id, seam.ahead_ms, seam.recent, each, seam.from_ms)
        return found, [*(late if len(found.series_id) else []), *recent]

    def _shared(self) -> tuple[int, int]:
        """(partitions of the log, window length in ms), from history's shared settings."""
        with open_history_admin(self._options.places.history, self._options.places.history_settings) as admin:
            shared = admin.shared()
        if not shared:
            raise ConfigMismatch(f"no shared settings are there: {HINT}", reason="history_schema")
        return int(shared["partitions"]), int(shared["time_set.window_ms"])

    def _check_holes(self, store: ChunkStore) -> None:
        start_ms, end_ms = self._span
        open_holes = [each.hole for each in store.holes(None, start_ms, end_ms) if not each.accepted]
        if open_holes:
            shown = "; ".join(
                f"partition {hole.partition} [{hole.start_ms}, {hole.end_ms}) {hole.reason}"
                for hole in open_holes[:HOLES_SHOWN]
            )
            raise HoleInRange(
                f"{len(open_holes)} named losses lie in the range: {shown}; read past them with the option"
                " allow_holes=true, or accept them (`tsdb holes`)"
            )

    def _pack_parts(
        self, store: ChunkStore, log_partitions: int, window_ms: int, late: LateSeries | None
    ) -> list[InputPartition]:
        table = history_table(store, self._narrowing, log_partitions, labels=False)
        start_ms, end_ms = self._span
        windows = WindowRange.touching(max(start_ms, table.start_ms), min(end_ms, table.end_ms), window_ms)
        if not len(table.pack_ids) or windows.start_ms >= windows.end_ms:
            return []
        shares = np.array_split(table.pack_ids, min(self._options.splits, len(table.pack_ids)))
        return [PacksPart(log_partitions, share.tobytes(), windows.start_ms, windows.end_ms, late) for share in shares]

    # Tasks run these.

    def _pieces(self, store: ChunkStore, partition: TokensPart | PacksPart) -> Iterator[list[ChunkRow]]:
        if isinstance(partition, TokensPart):
            return store.scan(RowSplit(partition.after, partition.through))
        packs = np.frombuffer(partition.pack_ids, np.uint64).tolist()
        return store.read(packs, WindowRange(partition.start_ms, partition.end_ms))

    def _table(self, store: ChunkStore, log_partitions: int) -> HistoryTable:
        global _kept
        query, table = _kept
        if query != self._query or table is None:
            table = history_table(store, self._narrowing, log_partitions, labels=self._columns.need_labels)
            _kept = self._query, table
        return table

    def _wanted(self, runs: SampleRuns, table: HistoryTable | None) -> SampleRuns:
        runs = runs.within(*self._span)
        if table is None or not len(runs):
            return runs
        known = table.series.find(runs.series_id) >= 0
        if known.all():
            return runs
        if not table.chosen:
            pack_id = int(runs.pack_id[~known][0])
            raise Unavailable(
                f"pack {pack_id:016x} has samples of {len(np.unique(runs.series_id[~known]))} series"
                " that the index of history does not know yet: the loader is behind",
                reason="history_behind",
            )
        return runs.where(np.repeat(known, runs.lengths))

    def _batches(self, runs: SampleRuns, table: SeriesLabels | None) -> Iterator[pa.RecordBatch]:
        if self._columns.runs:
            return run_batches(runs, self._columns, table)
        return record_batches(runs.samples, self._columns, table)

    @property
    def _span(self) -> tuple[int, int]:
        span = self._narrowing.span.within(EVER)
        assert span.start_ms is not None, "ever has a start"
        assert span.end_ms is not None, "ever has an end"
        return span.start_ms, span.end_ms

    @property
    def _reads_all(self) -> bool:
        return self._narrowing == Narrowing()

    @property
    def _needs_table(self) -> bool:
        narrowed = self._narrowing
        by_series = bool(narrowed.matchers) or narrowed.series_ids is not None
        return self._columns.need_labels or by_series


_kept: tuple[str, HistoryTable | None] = ("", None)


def _windows(pieces: Iterable[list[ChunkRow]]) -> Iterator[list[ChunkRow]]:
    """All rows of one window of one pack together. A piece may end within a window, so pieces are joined first."""
    rows = (row for piece in pieces for row in piece)
    for _, window in groupby(rows, key=lambda row: (row.key.pack_id, row.key.window_start_ms)):
        yield list(window)


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


def history_table(store: ChunkStore, narrowing: Narrowing, log_partitions: int, *, labels: bool = True) -> HistoryTable:
    """The table for all index epochs that the narrowing touches. labels: whether the series in it have labels. Raises
    as history and as a selector's matching do.
    """
    epochs = store.epochs()
    chosen = bool(narrowing.matchers) or narrowing.series_ids is not None
    if not epochs:
        return HistoryTable(*_joined([], labels=labels), chosen, 0, 0)
    # The phase of a series shifts its epochs into the past by less than one epoch.
    start_ms, end_ms = (epochs[0] - 1) * EPOCH_MS, (epochs[-1] + 1) * EPOCH_MS
    span = narrowing.span
    first_ms = start_ms if span.start_ms is None else max(span.start_ms, start_ms)
    last_ms = end_ms if span.end_ms is None else min(span.end_ms, end_ms)
    if first_ms >= last_ms:
        return HistoryTable(*_joined([], labels=labels), chosen, first_ms, first_ms)
    found: Iterable[_Part]
    if narrowing.series_ids is None and narrowing.matchers:
        found = _matching(store, narrowing, first_ms, last_ms, log_partitions)
    else:
        ids = None if narrowing.series_ids is None else np.array(sorted(narrowing.series_ids), np.uint64)
        if ids is not None and narrowing.matchers:
            matching = _matching(store, narrowing, first_ms, last_ms, log_partitions)
            ids = np.intersect1d(ids, np.concatenate([np.empty(0, np.uint64), *(part.series_id for part in matching)]))
        # The index has the pack of each series, so that the packs of other series are not read.
        found = _announced(store, epochs, first_ms, last_ms, ids)
    series, packs = _joined(found, labels=labels)
    if narrowing.pack_ids is not None:
        packs = np.intersect1d(packs, np.array(sorted(narrowing.pack_ids), np.uint64))
    return HistoryTable(series, packs, chosen, first_ms, last_ms)


@dataclass(frozen=True, slots=True)
class _Part:
    """One part of the table. series_id, text: distinct series, with the labels of each. pack_id: their packs."""

    series_id: NDArray[np.uint64]
    text: LabelText
    pack_id: NDArray[np.uint64]


def _joined(parts: Iterable[_Part], *, labels: bool) -> tuple[SeriesLabels, NDArray[np.uint64]]:
    """One table of all parts, and the distinct packs. A series may be in several parts."""
    ids, packs, text = [np.empty(0, np.uint64)], [np.empty(0, np.uint64)], LabelText()
    for part in parts:
        ids.append(part.series_id)
        packs.append(part.pack_id)
        if labels:
            text.join(part.text)
    series = SeriesLabels.joined(np.concatenate(ids), text)
    return series, np.unique(np.concatenate(packs))


def _matching(store: ChunkStore, narrowing: Narrowing, start_ms: int, end_ms: int, log_partitions: int) -> list[_Part]:
    wanted = dict.fromkeys(range(log_partitions), 0)
    found = HistoryIndex(store).find(Choice(narrowing.matchers), start_ms, end_ms, {}, wanted).values()
    return [_Part(each.series_ids, LabelText(each.labels), np.array(each.pack_ids, np.uint64)) for each in found]


def _announced(
    store: ChunkStore, epochs: Sequence[int], start_ms: int, end_ms: int, ids: NDArray[np.uint64] | None
) -> Iterator[_Part]:
    """All series announced for the epochs of a span, derived ones included, one part for each metric name. Without a
    search no index is built. ids: ids of the series to keep; None: all.
    """
    names: dict[bytes, list[int]] = {}
    for epoch in epochs:
        # The phase of a series shifts its epochs into the past by less than one epoch.
        if (epoch - 1) * EPOCH_MS < end_ms and start_ms < (epoch + 1) * EPOCH_MS:
            for name in store.metric_names(epoch):
                names.setdefault(name, []).append(epoch)
    waiting = list(names.items())
    with ThreadPoolExecutor(READERS, thread_name_prefix="history-series") as readers:
        # Some names at a time, because labels as Python objects take much more memory than the table.
        for first in range(0, len(waiting), 2 * READERS):
            some = waiting[first : first + 2 * READERS]
            yield from readers.map(lambda one: _part(store, one[0], one[1], ids), some)


def _part(store: ChunkStore, name: bytes, epochs: Sequence[int], ids: NDArray[np.uint64] | None) -> _Part:
    """The series of one name, each once, though most are in every epoch."""
    text = LabelText()
    series_id, pack_id = np.empty(0, np.uint64), [np.empty(0, np.uint64)]
    for epoch in epochs:
        rows = store.series(epoch, name)
        new = ~np.isin(rows.series_id, series_id)
        if ids is not None:
            new &= np.isin(rows.series_id, ids)
        text.add([rows.labels[at] for at in np.flatnonzero(new).tolist()])
        series_id = np.concatenate([series_id, rows.series_id[new]])
        pack_id.append(np.unique(rows.pack_id[new]))
        del rows  # Before the next ones come: a name may have all series of the read.
    return _Part(series_id, text, np.concatenate(pack_id))
