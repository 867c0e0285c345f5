"""History in Cassandra: implements ChunkStore with its driver. Tables: docs/formats/cassandra.md.

Computes splits by token ranges of a Cassandra ring.

Token ranges of a Cassandra ring. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from types import TracebackType
from typing import Any, Self

from cassandra.query import BoundStatement, PreparedStatement

from tsdb.codec.chunk.key import ChunkKey
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import Announcement
from tsdb.history import statement_metrics as metrics
from tsdb.history.cassandra.reads import PageSize, Row, Silence, read_ahead
from tsdb.history.cassandra.session import Connected, LazySession, Resolve, addresses_of
from tsdb.history.cassandra.tables import Statements
from tsdb.history.cassandra.writes import CassandraWrites, Write
from tsdb.history.claims import log_ids, standing, withdrawn_id
from tsdb.history.interface import (
    ChunkRow,
    HistoryHole,
    Loaded,
    OnDone,
    RowSplit,
    SeriesIndexRows,
    SeriesPiece,
    WantedSeries,
    WindowRange,
)
from tsdb.history.known_names import KnownNames
from tsdb.history.rows import (
    KEY_MAX,
    KEY_MIN,
    SERIES_BUCKETS,
    bucket_of,
    check_size,
    chunk_key_columns,
    holes_of,
    key_columns_of,
    key_of,
    month_of,
    months_of,
    pieces_of,
    series_index_rows,
    series_piece,
    signed,
)
from tsdb.history.settings import HistorySettings, Hosts
from tsdb.history.writes import WriteGroup
from tsdb.model.errors import TsdbError
from tsdb.model.labels import metric_name

_RING = 1 << 64  # Number of tokens.

Bind = Callable[[Statements], BoundStatement]


def estimated_bytes(estimates: Iterable[tuple[str, str, int, int]]) -> int:
    """Bytes of a whole table, from one server's estimates of its ranges: tuples (start, end, mean bytes, row keys)."""
    tokens = size = 0
    for start, end, mean_bytes, row_keys in estimates:
        # A range from a token to itself is the whole ring.
        tokens += (int(end) - int(start)) % _RING or _RING
        size += mean_bytes * row_keys
    return size * _RING // tokens if tokens else 0


def ring_splits(ring: Iterable[int], count: int) -> list[RowSplit]:
    """The whole ring as at least `count` ranges in order, each between two neighbouring tokens of the ring."""
    assert count > 0, f"got a count of {count} token ranges"
    borders = sorted({KEY_MIN, KEY_MAX, *ring})
    whole = KEY_MAX - KEY_MIN
    ranges: list[RowSplit] = []
    for after, through in pairwise(borders):
        pieces = max(1, -(-(through - after) * count // whole))
        cuts = [after + (through - after) * at // pieces for at in range(pieces + 1)]
        ranges += [RowSplit(a, b) for a, b in pairwise(cuts) if a < b]
    return ranges


class CassandraStore:
    """ChunkStore. `on_done` is called on the driver's only thread: a slow callback delays all other answers.

    resolve: returns the addresses of a host name; called at each connect.
    """

    def __init__(self, hosts: Hosts, settings: HistorySettings, *, resolve: Resolve = addresses_of) -> None:
        self._settings = settings
        self._session = LazySession(hosts, settings, resolve=resolve)
        self._silence = Silence(settings.silence_s)
        self._writes = CassandraWrites(settings)
        self._names = KnownNames()
        self._page_size = PageSize(settings.page_bytes_target)

    # Chunks.

    def write(self, key: ChunkKey, value: bytes, on_done: OnDone) -> None:
        check_size(key, value, self._settings.part_bytes_max)
        values = (*_row_key(key), value)
        self._put(metrics.CHUNK, lambda to: to.put_chunk.bind(values), on_done, len(value))

    def delete_covered(self, keys: Sequence[ChunkKey], on_done: OnDone) -> None:
        """Implements ChunkStore.delete_covered with one statement for each row."""
        if not keys:
            on_done(None)
            return
        group = WriteGroup(len(keys), on_done)
        for values in [_row_key(key) for key in keys]:
            self._put(metrics.DELETE, lambda to, values=values: to.delete_chunk.bind(values), group)  # type: ignore[misc]

    def read(
        self, pack_ids: Sequence[int], windows: WindowRange, wanted: WantedSeries | None = None
    ) -> Iterator[list[ChunkRow]]:
        return self._chunks(_bound(self._connected().statements.read_chunks, pack_ids, windows))

    def keys(self, pack_id: int, windows: WindowRange) -> list[ChunkKey]:
        rows = self._rows(_bound(self._connected().statements.read_keys, [pack_id], windows))
        metrics.read_keys_total.inc(len(rows))
        return list(map(key_of, rows))

    def row_splits(self, count: int) -> list[RowSplit]:
        token_map = self._connected().session.cluster.metadata.token_map
        return ring_splits([token.value for token in token_map.ring] if token_map else [], count)

    def chunk_bytes(self) -> int:
        """Implements ChunkStore's estimate. A server estimates its flushed data, every few minutes."""
        return estimated_bytes(self._rows([self._connected().statements.read_sizes.bind(())]))

    def scan(self, split: RowSplit, windows: WindowRange | None = None) -> Iterator[list[ChunkRow]]:
        statements, tokens = self._connected().statements, (split.after, split.through)
        if windows is None:
            return self._chunks([statements.scan_chunks.bind(tokens)])
        return self._chunks([statements.scan_windows.bind((*tokens, windows.start_ms, windows.end_ms))])

    # The `loaded` values.

    def write_loaded(self, loaded: Loaded, on_done: OnDone) -> None:
        values = (loaded.topic_id, loaded.partition, loaded.position, loaded.emitted_through_ms, loaded.position)
        self._put(metrics.LOADED, lambda to: to.put_loaded.bind(values), on_done)

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        rows = self._rows([self._connected().statements.read_loaded.bind((topic_id, withdrawn_id(topic_id)))])
        return standing(topic_id, (Loaded(*row) for row in rows))

    def loaded_topics(self) -> list[str]:
        return log_ids(row[0] for row in self._rows([self._connected().statements.loaded_topics.bind(())]))

    # Holes.

    def write_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        values = (*key_columns_of(hole), hole.reason)
        self._put(metrics.HOLE, lambda to: to.put_hole.bind(values), on_done)

    def accept_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        values = (*key_columns_of(hole), hole.reason)
        self._put(metrics.HOLE, lambda to: to.accept_hole.bind(values), on_done)

    def delete_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        self._put(metrics.HOLE, lambda to: to.delete_hole.bind(key_columns_of(hole)), on_done)

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]:
        """See ChunkStore. Reads the whole table, because holes are few."""
        rows = self._rows([self._connected().statements.read_holes.bind(())])
        return holes_of(rows, partitions, start_ms, end_ms)

    # Series of the past.

    def write_series(self, announcement: Announcement, partition: int, on_done: OnDone) -> None:
        """Implements ChunkStore.write_series. The first series of a name takes two statements, any other one."""
        name = (announcement.epoch, metric_name(announcement.canonical))
        series_id = announcement.series_id
        values = (
            *(*name, bucket_of(series_id), signed(series_id)),
            *(signed(announcement.pack_id), partition, announcement.canonical),
        )
        group = WriteGroup(2, on_done)
        self._names.ensure(
            name, lambda done: self._put(metrics.METRIC_NAME, lambda to: to.put_metric_name.bind(name), done), group
        )
        self._put(metrics.SERIES, lambda to: to.put_series.bind(values), group)

    def forget(self) -> None:
        self._names.forget()

    def epochs(self) -> list[int]:
        """See ChunkStore; reads the partition keys of metric_names, one per epoch."""
        return sorted(row[0] for row in self._rows([self._connected().statements.read_epochs.bind(())]))

    def metric_names(self, epoch: int) -> list[bytes]:
        return [row[0] for row in self._rows([self._connected().statements.read_metric_names.bind((epoch,))])]

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        read_series = self._connected().statements.read_series
        return series_index_rows(
            self._rows(read_series.bind((epoch, name, bucket)) for bucket in range(SERIES_BUCKETS))
        )

    def scan_series(self) -> Iterator[SeriesPiece]:
        """Implements ChunkStore.scan_series with one statement for each token range, several at once."""
        scan_series = self._connected().statements.scan_series
        bound = (scan_series.bind((tokens.after, tokens.through)) for tokens in self.row_splits(1))
        for page in read_ahead(self._connected().session, bound, self._settings, self._silence):
            yield series_piece(page)

    def close(self) -> None:
        self._writes.close()
        self._session.close()

    def _connected(self) -> Connected:
        try:
            return self._session.get()
        except TsdbError as error:
            raise metrics.count_failure(error) from None

    def _put(self, kind: str, bind: Bind, on_done: OnDone, size: int = 0) -> None:
        connected = self._connected()
        self._writes.put(Write(kind, connected.session, bind(connected.statements), on_done, size))

    def _rows(self, statements: Iterable[BoundStatement]) -> list[Row]:
        pages = read_ahead(self._connected().session, statements, self._settings, self._silence)
        return [row for page in pages for row in page]

    def _chunks(self, statements: Iterable[BoundStatement]) -> Iterator[list[ChunkRow]]:
        session = self._connected().session
        for page in read_ahead(session, statements, self._settings, self._silence, self._page_size):
            pieces = pieces_of(page)
            size = sum(len(row.value) for piece in pieces for row in piece)
            self._page_size.saw(len(page), size)
            metrics.read_rows_total.inc(len(page))
            metrics.read_bytes_total.inc(size)
            yield from pieces

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _bound(statement: PreparedStatement, pack_ids: Iterable[int], windows: WindowRange) -> Iterator[BoundStatement]:
    """The statement for each month of each pack."""
    for pack_id in pack_ids:
        for month in months_of(windows):
            yield statement.bind((signed(pack_id), month, windows.start_ms, windows.end_ms))


def _row_key(key: ChunkKey) -> tuple[Any, ...]:
    pack_id, window_start_ms, order, kind, part = chunk_key_columns(key)
    return pack_id, month_of(window_start_ms), window_start_ms, order, kind, part
