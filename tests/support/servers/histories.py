"""Histories for tests: one of each kind, emptied for each test, and rows to put into them."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Self

from tsdb.codec.chunk.key import ChunkKey, Kind
from tsdb.codec.records.series_record import Announcement
from tsdb.history.interface import ChunkRow, ChunkSink, ChunkStore, OnDone
from tsdb.history.open import SQLITE, open_history, open_history_admin
from tsdb.history.settings import CASSANDRA, HistorySettings, Hosts
from tsdb.history.shared_settings import HistoryAdmin, ensure_history, shared_rows
from tsdb.history.writes import write_sync
from tsdb.model.errors import TsdbError
from tsdb.model.labels import canonical_labels, series_id
from tsdb.model.meta import MetaSettings
from tsdb.model.placement import PlacementRule

META = MetaSettings(partitions=3)
WINDOW_MS = 4 * 3600 * 1000
WITHIN_S = 30.0


class HistoryFactory:
    """Opens stores of the history at one URL; closes them all at its end."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._stack = ExitStack()

    @property
    def is_cassandra(self) -> bool:
        """Whether a real cluster is behind it."""
        return self.url.startswith(CASSANDRA)

    def open(self, settings: HistorySettings | None = None) -> ChunkStore:
        """A new connection, closed at the end of the test."""
        return self._stack.enter_context(open_history(self.url, settings))

    def admin(self) -> HistoryAdmin:
        """A connection that creates tables, closed at the end of the test."""
        return self._stack.enter_context(open_history_admin(self.url))

    def create(self) -> None:
        """Make the tables, or empty those that are there."""
        with open_history_admin(self.url) as admin:
            if not admin.create(shared_rows(META), replication=1) and self.is_cassandra:
                truncate(self.url)
            ensure_history(admin, META)

    def empty(self) -> None:
        """Empty all tables except the shared settings."""
        if self.is_cassandra:
            truncate(self.url)
            return
        with contextlib.closing(sqlite3.connect(self.url.removeprefix(SQLITE))) as database, database:
            for (table,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
                if table != "shared":
                    database.execute(f"DELETE FROM {table}")

    def close(self) -> None:
        """Close all connections, the last opened first."""
        self._stack.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def truncate(url: str) -> None:
    """Empty all tables but the shared settings."""
    from tsdb.history.cassandra.session import open_cluster
    from tsdb.history.cassandra.tables import TABLES

    hosts = Hosts.parse(url)
    cluster = open_cluster(hosts, HistorySettings())
    try:
        session = cluster.connect(hosts.keyspace)
        for table in TABLES:
            if table.name != "shared":
                session.execute(f"TRUNCATE {table.name}", timeout=60.0)
    finally:
        cluster.shutdown()


class Answers:
    """on_done of many writes, and their answers."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self.all: list[TsdbError | None] = []

    def __call__(self, error: TsdbError | None) -> None:
        with self._changed:
            self.all.append(error)
            self._changed.notify_all()

    def wait(self, count: int, within_s: float = WITHIN_S) -> list[TsdbError | None]:
        """The first `count` answers."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.all) >= count, within_s), f"{len(self.all)} of {count}"
            return list(self.all)


def written(begin: Callable[[OnDone], None]) -> None:
    """Write and wait; fails as the write does."""
    write_sync(begin, WITHIN_S)


def write_rows(store: ChunkSink, rows: Iterable[ChunkRow]) -> None:
    """Write all rows at once. Raises the first error."""
    answers, count = Answers(), 0
    for row in rows:
        store.write(row.key, row.value, answers)
        count += 1
    failed = [error for error in answers.wait(count) if error is not None]
    if failed:
        raise failed[0]


def row(
    pack_id: int, window: int, *, kind: Kind = Kind.BASE, order: int = 100, part: int = 0, value: bytes = b"chunk"
) -> ChunkRow:
    """A row of the window with this number."""
    return ChunkRow(ChunkKey(pack_id, window * WINDOW_MS, kind, order, part), value)


def announcement(epoch: int, **labels: str) -> Announcement:
    """An announcement of a series; `name` is `__name__`."""
    canonical = canonical_labels({"__name__" if key == "name" else key: value for key, value in labels.items()})
    return Announcement(series_id(canonical), epoch, PlacementRule().place(canonical).pack_id, canonical)
