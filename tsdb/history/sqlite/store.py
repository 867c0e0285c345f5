"""History in one SQLite file: implements ChunkStore for a single process."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tsdb.codec.chunk.key import ChunkKey
from tsdb.codec.chunk.marker import HoleRecord
from tsdb.codec.records.series_record import Announcement
from tsdb.history import statement_metrics as metrics
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
    KEY_MIN,
    check_size,
    chunk_key_columns,
    even_splits,
    holes_of,
    key_columns_of,
    key_of,
    series_index_rows,
    series_piece,
    signed,
)
from tsdb.history.settings import HistorySettings
from tsdb.history.sqlite import database as sql
from tsdb.history.sqlite.database import ERRORS, connect
from tsdb.history.sqlite.writer import HistoryWriter, StatementGroup
from tsdb.history.writes import WriteGroup
from tsdb.model.errors import TsdbError
from tsdb.model.labels import metric_name

FETCH_ROWS = 64
SCAN_ROWS = 1_000
EPOCH_MIN = -(1 << 31)


class SqliteStore:
    """ChunkStore. Each read uses a separate connection, so that no read waits for the writer."""

    def __init__(self, path: Path, settings: HistorySettings) -> None:
        self._path = path
        self._settings = settings
        self._writer = HistoryWriter(path, settings)
        self._lock = threading.Lock()  # Guards the connections that no read uses.
        self._idle: list[sqlite3.Connection] = []
        self._closed = False
        self._names = KnownNames()

    # Chunks.

    def write(self, key: ChunkKey, value: bytes, on_done: OnDone) -> None:
        check_size(key, value, self._settings.part_bytes_max)
        self._put(metrics.CHUNK, [(sql.PUT_CHUNK, (*chunk_key_columns(key), value))], on_done, len(value))

    def delete_covered(self, keys: Sequence[ChunkKey], on_done: OnDone) -> None:
        if not keys:
            on_done(None)
            return
        self._put(metrics.DELETE, [(sql.DELETE_CHUNK, chunk_key_columns(key)) for key in keys], on_done)

    def read(
        self, pack_ids: Sequence[int], windows: WindowRange, wanted: WantedSeries | None = None
    ) -> Iterator[list[ChunkRow]]:
        return self._read(map(signed, pack_ids), windows)

    def keys(self, pack_id: int, windows: WindowRange) -> list[ChunkKey]:
        rows = self._rows(sql.READ_KEYS, (signed(pack_id), windows.start_ms, windows.end_ms))
        metrics.read_keys_total.inc(len(rows))
        return list(map(key_of, rows))

    def row_splits(self, count: int) -> list[RowSplit]:
        """See ChunkStore; a pack's token is its signed id."""
        return even_splits(count)

    def chunk_bytes(self) -> int:
        """See ChunkStore; the size of the file, which is nearly all chunks. A sum would have to read the whole file."""
        return int(self._rows(sql.FILE_BYTES, ())[0][0])

    def scan(self, split: RowSplit, windows: WindowRange | None = None) -> Iterator[list[ChunkRow]]:
        # No row has the lowest token in Cassandra; here a pack may have it.
        first = split.after if split.after == KEY_MIN else split.after + 1
        if windows is None:
            return self._pieces(sql.SCAN_CHUNKS, (first, split.through))
        return self._read(self._packs(first, split.through), windows)

    # The `loaded` values.

    def write_loaded(self, loaded: Loaded, on_done: OnDone) -> None:
        values = (loaded.topic_id, loaded.partition, loaded.position, loaded.emitted_through_ms)
        self._put(metrics.LOADED, [(sql.PUT_LOADED, values)], on_done)

    def loaded(self, topic_id: str) -> dict[int, Loaded]:
        rows = self._rows(sql.READ_LOADED, (topic_id, withdrawn_id(topic_id)))
        return standing(topic_id, (Loaded(*row) for row in rows))

    def loaded_topics(self) -> list[str]:
        return log_ids(row[0] for row in self._rows(sql.LOADED_TOPICS, ()))

    # Holes.

    def write_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        self._put(metrics.HOLE, [(sql.PUT_HOLE, (*key_columns_of(hole), hole.reason))], on_done)

    def accept_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        self._put(metrics.HOLE, [(sql.ACCEPT_HOLE, (*key_columns_of(hole), hole.reason))], on_done)

    def delete_hole(self, hole: HoleRecord, on_done: OnDone) -> None:
        self._put(metrics.HOLE, [(sql.DELETE_HOLE, key_columns_of(hole))], on_done)

    def holes(self, partitions: Collection[int] | None, start_ms: int, end_ms: int) -> list[HistoryHole]:
        return holes_of(self._rows(sql.READ_HOLES, (end_ms, start_ms)), partitions, start_ms, end_ms)

    # Series of the past.

    def write_series(self, announcement: Announcement, partition: int, on_done: OnDone) -> None:
        name = (announcement.epoch, metric_name(announcement.canonical))
        ids = (signed(announcement.series_id), signed(announcement.pack_id))
        row = (sql.PUT_SERIES, (*name, *ids, partition, announcement.canonical))
        if self._names.holds(name):
            self._put(metrics.SERIES, [row], on_done)
            return
        group = WriteGroup(2, on_done)
        self._names.ensure(
            name, lambda done: self._put(metrics.METRIC_NAME, [(sql.PUT_METRIC_NAME, name)], done), group
        )
        self._put(metrics.SERIES, [row], group)

    def forget(self) -> None:
        self._names.forget()

    def epochs(self) -> list[int]:
        return [row[0] for row in self._rows(sql.READ_EPOCHS, ())]

    def metric_names(self, epoch: int) -> list[bytes]:
        return [row[0] for row in self._rows(sql.READ_METRIC_NAMES, (epoch,))]

    def series(self, epoch: int, name: bytes) -> SeriesIndexRows:
        return series_index_rows(self._rows(sql.READ_SERIES, (epoch, name)))

    def scan_series(self) -> Iterator[SeriesPiece]:
        key: tuple[object, ...] = (EPOCH_MIN - 1, b"", KEY_MIN)
        while rows := self._rows(sql.SCAN_SERIES, (*key, SCAN_ROWS)):
            key = rows[-1][:3]
            yield series_piece((row[0], *row[2:]) for row in rows)

    def close(self) -> None:
        self._writer.close()
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _put(
        self, kind: str, statements: Sequence[tuple[str, tuple[object, ...]]], on_done: OnDone, size: int = 0
    ) -> None:
        self._writer.put(StatementGroup(kind, statements, on_done, size))

    def _rows(self, statement: str, values: tuple[object, ...]) -> list[tuple]:  # type: ignore[type-arg]
        with self._reading() as connection:
            return connection.execute(statement, values).fetchall()

    def _pieces(self, statement: str, values: tuple[object, ...]) -> Iterator[list[ChunkRow]]:
        """Rows of one statement, in pieces of one pack each."""
        # An open cursor would keep a read transaction open, so that the WAL could not shrink.
        with self._reading() as connection, closing(connection.execute(statement, values)) as rows:
            piece: list[ChunkRow] = []
            size = 0
            while fetched := rows.fetchmany(FETCH_ROWS):
                for row in fetched:
                    chunk = ChunkRow(key_of(row[:5]), row[5])
                    if piece and (piece[0].key.pack_id != chunk.key.pack_id or size > self._settings.page_bytes_target):
                        yield piece
                        piece, size = [], 0
                    piece.append(chunk)
                    size += len(chunk.value)
                    metrics.read_rows_total.inc()
                    metrics.read_bytes_total.inc(len(chunk.value))
            if piece:
                yield piece

    def _read(self, packs: Iterable[int], windows: WindowRange) -> Iterator[list[ChunkRow]]:
        for pack in packs:
            yield from self._pieces(sql.READ_CHUNKS, (pack, windows.start_ms, windows.end_ms))

    def _packs(self, first: int, last: int) -> Iterator[int]:
        """Signed ids of the packs in [first, last] that have a row, ascending. Each is one search of the primary key's
        index, so rows in other windows cost nothing.
        """
        while first <= last and (pack := self._rows(sql.NEXT_PACK, (first, last))[0][0]) is not None:
            yield pack
            first = pack + 1

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """A connection that no other read uses meanwhile."""
        metrics.statements_total.labels(metrics.READ).inc()
        with self._lock:
            connection = self._idle.pop() if self._idle else None
        try:
            if connection is None:
                connection = connect(self._path)
            with ERRORS.translate("reading"):
                yield connection
        except TsdbError as error:
            metrics.count_failure(error)
            raise
        finally:
            self._give_back(connection)

    def _give_back(self, connection: sqlite3.Connection | None) -> None:
        with self._lock:
            if connection is not None and not self._closed:
                self._idle.append(connection)
                return
        if connection is not None:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
