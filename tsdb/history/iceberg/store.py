"""History read from the Iceberg table that a loader keeps: series index, samples, holes and `loaded` for queriers.

Reads need the files alone, not the catalog. Each read sees a published snapshot that is at most REFRESH_S old, never an
older one than a read before it; a snapshot that expires under a read is left for the newest one. The keeper publishes
series before samples, and a view is read the other way round, so each sample's series is there.
"""

from __future__ import annotations

import json
import threading
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyiceberg.io import load_file_io
from pyiceberg.utils.config import Config

from tsdb.codec.chunk.chunk import Fragment
from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.histogram_rows import read_details
from tsdb.history import statement_metrics as metrics
from tsdb.history.iceberg.blocks import SAMPLE_COLUMNS, Blocks, DiskCache, FileRef, has_between
from tsdb.history.iceberg.catalog import (
    OWN_CATALOG,
    SERIES_SUFFIX,
    SHARED_PROPERTY,
    buckets_of,
    buckets_of_series,
    differences,
    local_path,
    translate_table_errors,
)
from tsdb.history.iceberg.decoded import DecodedRead
from tsdb.history.iceberg.rows import DETAIL_COLUMNS, MetricBuckets, text_of
from tsdb.history.iceberg.state import TableState, table_state
from tsdb.history.iceberg.view import FollowedTable, TableView
from tsdb.history.interface import HistoryHole, Loaded, SeriesIndexRows, WantedSeries, WindowRange
from tsdb.history.settings import HistorySettings
from tsdb.model.arrays import joined_ranges
from tsdb.model.clock import Clock, SystemClock
from tsdb.model.details import SampleDetails
from tsdb.model.errors import ConfigMismatch, CorruptData, InvalidRequest, TsdbError
from tsdb.model.times import DAY_MS

REFRESH_S = 1.0
BATCH_ROWS = 8 << 20  # Rows that row groups of one batch of series may have; about as many are in memory at once.
ROW_BYTES = 8 * len(SAMPLE_COLUMNS)
SERIES_COLUMNS = ("metric", "series_id", "pack_id", "partition", "canonical")

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class TableRow:
    """Samples of one day. key: pack_id counts the batches of series of one read. size: bytes of their row groups."""

    key: ChunkKey
    samples: Fragment
    size: int

    def fragment(self) -> Fragment:
        return self.samples


@dataclass(frozen=True, slots=True)
class _Now:
    samples: TableView
    state: TableState | None
    bucket_of: MetricBuckets
    series: TableView
    series_bucket_of: MetricBuckets


class IcebergHistory:
    """HistoryReads of the table at a location, a URI or path. Thread-safe."""

    def __init__(self, location: str, settings: HistorySettings, clock: Clock | None = None) -> None:
        io = load_file_io(_properties(settings), location)
        local = local_path(location) is not None
        self._location = location
        self._clock = clock or SystemClock()
        self._samples = FollowedTable(io, location, (location,))
        self._series = FollowedTable(io, location + SERIES_SUFFIX, (location + SERIES_SUFFIX,))
        cache = None if local else DiskCache(settings.cache_folder, settings.cache_bytes_max)
        self._blocks = Blocks(io, cache, settings.decoded_bytes_max)
        self._lock = threading.Lock()  # Guards all below; held while the published tables are read.
        self._known: _Now | None = None
        self._known_at = 0.0
        self._names: dict[
            int, tuple[frozenset[str], list[bytes]]
        ] = {}  # Names of an epoch, with the paths of its files.

    # HistoryReads.

    def read(
        self, pack_ids: Sequence[int], windows: WindowRange, wanted: WantedSeries | None = None
    ) -> Iterator[list[TableRow]]:
        """See HistoryReads. A table has no packs: rows come in batches of whole series of one bucket, day by day."""
        if wanted is None:
            raise InvalidRequest("a table is read by series, not by pack", reason="tables_packs")
        series = np.sort(wanted.series_ids.view(np.int64))
        by_bucket: dict[int, list[str]] = defaultdict(list)
        bucket_of = self._answer(self._now).bucket_of
        for name in sorted(map(text_of, wanted.names())):
            by_bucket[bucket_of(name.encode())].append(name)
        number, decoded = 0, self._blocks.decoded.read()
        for bucket, names in sorted(by_bucket.items()):
            now = self._answer(self._now)
            days = _days(now, bucket, windows)
            for ids in _batches(now, bucket, names, days, series):
                for day in days:
                    rows = self._answer(partial(self._day, number, (day, bucket), names, ids, windows, decoded))
                    if rows:
                        yield rows
                number += 1
        self._blocks.decoded.keep(decoded)

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        state = self._answer(lambda: self._now().state)
        if state is None or state.topic_id != topic_id:
            return {}
        return {
            number: Loaded(topic_id, number, cut.position, cut.emitted_through_ms) for number, cut in state.cut.items()
        }

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]:
        state = self._answer(lambda: self._now().state)
        return [] if state is None else state.losses(partitions, start_ms, end_ms)

    def metric_names(self, epoch: int) -> list[bytes]:
        return self._answer(lambda: self._metric_names(epoch))

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        return self._answer(lambda: self._rows_of_series(epoch, name))

    def index_version(self) -> int | None:
        """See IndexVersions: a commit of series may bring those of an import, whose samples are older than `loaded`."""
        return self._answer(lambda: self._now().series.number)

    def close(self) -> None:
        """Delete the cache. A second call does nothing."""
        self._blocks.close()

    # Views.

    def properties(self) -> Mapping[str, str]:
        """Properties of the table of series. Raises as a read."""
        return self._answer(lambda: self._now()).series.table.properties

    def _now(self, *, newest: bool = False) -> _Now:
        with self._lock:
            at = self._clock.monotonic()
            if self._known is None or newest or at - self._known_at >= REFRESH_S:
                samples = self._samples.refresh()
                series = self._series.refresh()
                if self._known is None or (samples, series) != (self._known.samples, self._known.series):
                    self._known = _checked(self._location, samples, series)
                self._known_at = at
            return self._known

    def _answer(self, read: Callable[[], Result]) -> Result:
        """A read; again on the newest snapshot if that of the first try was expired meanwhile."""
        metrics.statements_total.labels(metrics.READ).inc()
        try:
            with translate_table_errors(f"table {self._location}"):
                try:
                    return read()
                except FileNotFoundError:
                    self._now(newest=True)
                    return read()
        except TsdbError as error:
            metrics.count_failure(error)
            raise

    # Samples.

    def _day(
        self,
        number: int,
        place: tuple[int, int],
        names: Sequence[str],
        series: NDArray[np.int64],
        windows: WindowRange,
        decoded: DecodedRead,
    ) -> list[TableRow]:
        """The samples of these series, all of one bucket, in one day and bucket."""
        rows: list[TableRow] = []
        start_ms = place[0] * DAY_MS
        parts: list[tuple[FileRef, list[int]]] = []
        size = 0
        files = [
            file
            for file in self._now().samples.files.get(place, ())
            if _may_have(file, names, series) and _touches(file, windows)
        ]
        for file, footer in zip(files, self._blocks.footers(files), strict=True):
            if groups := footer.groups(names, series):
                parts.append((file, groups))
                size += ROW_BYTES * sum(footer.metadata.row_group(one).num_rows for one in groups)
        keeps = decoded.fits(size)
        for block in self._blocks.read_each(parts, decoded if keeps else None):
            fragment = fragment_of(block, series, number, start_ms)
            if fragment is not None:
                metrics.read_rows_total.inc(fragment.samples)
                metrics.read_bytes_total.inc(block.nbytes)
                rows.append(TableRow(ChunkKey(number, start_ms, Kind.BASE, 0, len(rows)), fragment, block.nbytes))
        return rows

    # Series.

    def _metric_names(self, epoch: int) -> list[bytes]:
        files = [file for place, some in self._now().series.files.items() if place[0] == epoch for file in some]
        paths = frozenset(file.path for file in files)
        known = self._names.get(epoch)
        if known is not None and known[0] == paths:
            return known[1]
        found: set[str] = set()
        for file in files:
            groups = range(self._blocks.footer(file).metadata.num_row_groups)
            found.update(self._blocks.read(file, groups, ["metric"])["metric"].unique().to_pylist())
        names = sorted(name.encode() for name in found)
        self._names[epoch] = paths, names
        return names

    def _rows_of_series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        now, metric = self._now(), text_of(name)
        blocks = []
        for file in now.series.files.get((epoch, now.series_bucket_of(name)), ()):
            if _may_have(file, [metric], None) and (groups := self._blocks.footer(file).groups([metric], None)):
                block = self._blocks.read(file, groups, SERIES_COLUMNS)
                blocks.append(block.filter(pc.equal(block["metric"].cast(pa.string()), metric)))
        if not blocks:
            empty = np.empty(0, np.uint64)
            return SeriesIndexRows(empty, empty, np.empty(0, np.int32), [])
        found = pa.concat_tables([block.select(SERIES_COLUMNS[1:]) for block in blocks])
        ids, first = np.unique(found["series_id"].to_numpy().view(np.uint64), return_index=True)
        packs, partitions = (found[name].to_numpy()[first] for name in ("pack_id", "partition"))
        canonical = found["canonical"].take(pa.array(first)).to_pylist()
        return SeriesIndexRows(ids, packs.view(np.uint64), partitions.astype(np.int32), canonical)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _properties(settings: HistorySettings) -> dict[str, str]:
    """Properties of the files: those of pyiceberg's configuration of our catalog."""
    timeout = f"{settings.read_timeout_s:g}"
    given = Config().get_catalog_config(OWN_CATALOG) or {}
    return {
        "s3.connect-timeout": timeout,
        "s3.request-timeout": timeout,
        **{name: str(value) for name, value in given.items()},
    }


def _checked(location: str, samples: TableView, series: TableView) -> _Now:
    found = differences(samples.table)
    buckets = buckets_of(samples.table)
    if found or buckets is None:
        raise ConfigMismatch(f"{location} is not a table of samples: {'; '.join(found)}", reason="tables_differs")
    return _Now(
        samples,
        table_state(samples.table),
        MetricBuckets(buckets),
        series,
        MetricBuckets(buckets_of_series(series.table)),
    )


def _days(now: _Now, bucket: int, windows: WindowRange) -> list[int]:
    """Days with files of the bucket in these windows, ascending."""
    first, last = windows.start_ms // DAY_MS, (windows.end_ms - 1) // DAY_MS
    return sorted(day for day, of_bucket in now.samples.files if of_bucket == bucket and first <= day <= last)


def _batches(
    now: _Now, bucket: int, names: Sequence[str], days: Sequence[int], series: NDArray[np.int64]
) -> list[NDArray[np.int64]]:
    """The series in shares whose files have at most some BATCH_ROWS rows."""
    files = (file for day in days for file in now.samples.files[day, bucket])
    rows = sum(file.rows for file in files if _may_have(file, names, series))
    return np.array_split(series, max(1, min(len(series), rows // BATCH_ROWS)))


def _touches(file: FileRef, windows: WindowRange) -> bool:
    return file.ts is None or (file.ts[0] < windows.end_ms * 1000 and file.ts[1] >= windows.start_ms * 1000)


def _may_have(file: FileRef, names: Sequence[str], series: NDArray[np.int64] | None) -> bool:
    if file.metric is not None and not has_between(names, *file.metric):
        return False
    if series is None or file.series is None:
        return True
    at = int(np.searchsorted(series, file.series[0]))
    return at < len(series) and int(series[at]) <= file.series[1]


def fragment_of(block: pa.Table, wanted: NDArray[np.int64], number: int, start_ms: int) -> Fragment | None:
    """The samples of these series (signed ids, ascending) in rows of one file; None without any.

    Rows of our files are sorted by series and time. Those of another program's rewrite may not be, and are sorted here.
    """
    has_details = "histogram" in block.column_names
    if block["value"].null_count:
        known = block["value"].is_valid()
        block = block.filter(pc.or_(known, block["histogram"].is_valid()) if has_details else known)
    if not len(block):
        return None
    series = block["series_id"].to_numpy()
    starts = np.flatnonzero(np.concatenate(([True], series[1:] != series[:-1])))
    lengths = np.diff(np.append(starts, len(series)))
    ids = series[starts]
    mine = np.flatnonzero(wanted[np.minimum(np.searchsorted(wanted, ids), len(wanted) - 1)] == ids)
    if not len(mine):
        return None
    unsigned = ids[mine].view(np.uint64)
    by_id = np.argsort(unsigned, kind="stable")
    mine, unsigned = mine[by_id], unsigned[by_id]
    rows = _rows(starts[mine], lengths[mine], len(block))
    ts_ms, value, order = _columns(block, rows)
    details = _details(block, rows) if has_details else None
    if details is not None and details.histograms is not None and details.histogram_of is not None:
        value = value.copy()
        value[details.histogram_of >= 0] = details.histograms.sums
    columns = ts_ms, value, order
    sample_start = np.concatenate(([0], np.cumsum(lengths[mine])))
    if not _ascends(unsigned, columns[0], sample_start):
        return _sorted(np.repeat(unsigned, lengths[mine]), columns, details, number, start_ms)
    return Fragment(number, start_ms, unsigned, sample_start, *columns, details)


Columns = tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.int64]]


def _rows(starts: NDArray[np.int64], lengths: NDArray[np.int64], count: int) -> NDArray[np.int64] | None:
    """The rows of these runs, one run behind another; None for all `count` rows in their order."""
    if int(lengths.sum()) == count and (np.diff(starts) > 0).all():
        return None
    return joined_ranges(starts, lengths)


def _columns(block: pa.Table, rows: NDArray[np.int64] | None) -> Columns:
    """ts_ms, value and order of these rows."""
    ts, value, order = block["ts"].cast(pa.int64()).to_numpy(), block["value"].to_numpy(), block["order"].to_numpy()
    if rows is None:
        return ts // 1000, value, order
    return ts[rows] // 1000, value[rows], order[rows]


def _details(block: pa.Table, rows: NDArray[np.int64] | None) -> SampleDetails | None:
    chosen = block.select(DETAIL_COLUMNS)
    if rows is not None:
        chosen = chosen.take(pa.array(rows))
    return read_details(chosen["histogram"], chosen["start_ts"])


def _ascends(series: NDArray[np.uint64], ts_ms: NDArray[np.int64], sample_start: NDArray[np.int64]) -> bool:
    rising = np.diff(ts_ms) > 0
    rising[sample_start[1:-1] - 1] = True
    return bool(rising.all()) and bool((series[1:] > series[:-1]).all())


def _sorted(
    series: NDArray[np.uint64], columns: Columns, details: SampleDetails | None, number: int, start_ms: int
) -> Fragment:
    ts_ms, value, order = columns
    rows = np.lexsort((ts_ms, series))
    ids, starts = np.unique(series[rows], return_index=True)
    if (np.diff(ts_ms[rows]) == 0)[np.diff(series[rows]) == 0].any():
        raise CorruptData("a file of the table has a (series, timestamp) twice", reason="tables_changed")
    kept = None if details is None else details.take(rows)
    return Fragment(number, start_ms, ids, np.append(starts, len(rows)), ts_ms[rows], value[rows], order[rows], kept)


class IcebergAdmin:
    """HistoryAdmin of a table that a loader keeps."""

    def __init__(self, location: str, settings: HistorySettings) -> None:
        self._location = location
        self._history = IcebergHistory(location, settings)

    def create(self, shared: Mapping[str, str], *, replication: int | None = None, ttl_days: int | None = None) -> bool:
        """Raises InvalidRequest (tables_create): the loader creates the table of series in the catalog that it has."""
        raise InvalidRequest(
            f"{self._location} is created by `tsdb tables create --tables CATALOG`, and kept by a loader with --tables;"
            " `tsdb tables drop` takes old days out of it",
            reason="tables_create",
        )

    def differences(self) -> list[str]:
        """Raises Unavailable (tables_missing) while no loader has published the table."""
        self._history.properties()
        return []

    def shared(self) -> dict[str, str]:
        stored = self._history.properties().get(SHARED_PROPERTY, "{}")
        return {name: str(value) for name, value in json.loads(stored).items()}

    def close(self) -> None:
        self._history.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
