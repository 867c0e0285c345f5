"""Creates and checks the tables of an embedded history."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from tsdb.history.shared_settings import HINT
from tsdb.history.sqlite.database import ERRORS, TABLES, connect, create, table_columns
from tsdb.model.errors import ConfigMismatch, InvalidRequest
from tsdb.sqlite.database import transaction


class SqliteHistoryAdmin:
    """HistoryAdmin of one file; the first `create` makes the file. Not thread-safe."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    def create(self, shared: Mapping[str, str], *, replication: int | None = None, ttl_days: int | None = None) -> bool:
        """See HistoryAdmin; replication is ignored, a file has no copies."""
        if ttl_days is not None:
            raise InvalidRequest(f"history in {self._path} keeps its rows: SQLite has no TTL", reason="no_ttl")
        if self._connection is None:
            self._connection = create(self._path)
        missing = [table for table in TABLES if not self._columns(table)]
        with transaction(self._connection, ERRORS, f"creating {self._path}", write=True):
            for table in missing:
                self._connection.execute(f"CREATE TABLE IF NOT EXISTS {table} ({TABLES[table]})")
            if "shared" in missing:
                self._connection.executemany("INSERT OR IGNORE INTO shared VALUES (?, ?)", shared.items())
        return bool(missing)

    def differences(self) -> list[str]:
        try:
            self._connected()
        except ConfigMismatch as error:
            return [error.message]
        found: list[str] = []
        for table, definition in TABLES.items():
            have, want = self._columns(table), table_columns(definition)
            if not have:
                found.append(f"table {table} is missing: {HINT}")
                continue
            for column in sorted({*have, *want}):
                if have.get(column) != want.get(column):
                    found.append(
                        f"table {table}: column {column} is {have.get(column, 'missing')}, "
                        f"must be {want.get(column, 'absent')}"
                    )
        return found

    def shared(self) -> dict[str, str]:
        with ERRORS.translate("reading shared settings"):
            return dict(self._connected().execute("SELECT name, value FROM shared").fetchall())

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _connected(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = connect(self._path)
        return self._connection

    def _columns(self, table: str) -> dict[str, str]:
        with ERRORS.translate(f"looking at table {table}"):
            rows = self._connected().execute(f"PRAGMA table_info({table})").fetchall()
        return {row[1]: row[2] for row in rows}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
