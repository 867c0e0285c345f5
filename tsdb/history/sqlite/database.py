"""The database of an embedded history: tables and connections. Columns are described in docs/formats/cassandra.md."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tsdb.history.sqlite.errors import translate_sqlite_errors
from tsdb.model.errors import ConfigMismatch

PAGE_BYTES = 16_384  # Chunks run from a hundred bytes to half a megabyte; small pages would chain the large ones.
BUSY_TIMEOUT_S = 10.0
WAL_PAGES = 1_024  # 16 MiB between checkpoints.

# `ord` is the order of a chunk's key, because ORDER is a keyword of SQL.
TABLES = {
    "shared": "name TEXT PRIMARY KEY, value TEXT NOT NULL",
    "chunks": (
        "pack_id INTEGER NOT NULL, window_start INTEGER NOT NULL, ord INTEGER NOT NULL, kind INTEGER NOT NULL, "
        "part INTEGER NOT NULL, value BLOB NOT NULL, PRIMARY KEY (pack_id, window_start, ord, kind, part)"
    ),
    "series": (
        "epoch INTEGER NOT NULL, name BLOB NOT NULL, series_id INTEGER NOT NULL, pack_id INTEGER NOT NULL, "
        "partition INTEGER NOT NULL, labels BLOB NOT NULL, PRIMARY KEY (epoch, name, series_id)"
    ),
    "metric_names": "epoch INTEGER NOT NULL, name BLOB NOT NULL, PRIMARY KEY (epoch, name)",
    "loaded": (
        "topic_id TEXT NOT NULL, partition INTEGER NOT NULL, position INTEGER NOT NULL, "
        "emitted_through_ms INTEGER NOT NULL, PRIMARY KEY (topic_id, partition)"
    ),
    "holes": (
        "partition INTEGER NOT NULL, start_ms INTEGER NOT NULL, end_ms INTEGER NOT NULL, pack_id INTEGER NOT NULL, "
        "record_offset INTEGER NOT NULL, reason TEXT NOT NULL, accepted INTEGER NOT NULL DEFAULT 0, "
        "PRIMARY KEY (partition, start_ms, end_ms, pack_id, record_offset)"
    ),
}


def connect(path: Path) -> sqlite3.Connection:
    """A connection to an existing history, for one thread at a time. Transactions are begun explicitly.

    Never makes a file. Raises ConfigMismatch (store_not_created).
    """
    if not path.is_file():
        raise _missing(path, "is not a file" if path.exists() else "does not exist")
    with translate_sqlite_errors(f"opening {path}"):
        return _open(path, "rw")


def create(path: Path) -> sqlite3.Connection:
    """See connect; creates the folder and an empty file where they are missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigMismatch(f"the history's folder cannot be made: {error}", reason="store_not_created") from None
    if path.is_dir():
        raise _missing(path, "is a folder")
    with translate_sqlite_errors(f"making {path}"):
        return _open(path, "rwc")


def _open(path: Path, mode: str) -> sqlite3.Connection:
    # One slash: after two slashes SQLite reads the first part of the path as a host name.
    url = f"file:/{quote(str(path.absolute()).lstrip('/'))}?mode={mode}"
    connection = sqlite3.connect(url, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, uri=True)
    connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
    connection.execute("PRAGMA journal_mode = WAL")
    # Because of `loaded`, memory and log drop samples: covered rows must survive a crash of the machine too.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_PAGES * PAGE_BYTES}")
    return connection


def _missing(path: Path, why: str) -> ConfigMismatch:
    return ConfigMismatch(
        f"history {path} {why}: `tsdb history create` and `tsdb standalone` make one", reason="store_not_created"
    )


@contextmanager
def transaction(connection: sqlite3.Connection, where: str) -> Iterator[None]:
    """A transaction, rolled back on an error. SQLite's errors are raised as TsdbError."""
    with translate_sqlite_errors(where):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # A full disk rolls back by itself.
                connection.execute("ROLLBACK")
            raise


def columns_of(definition: str) -> dict[str, str]:
    """Column names and types of a table of TABLES."""
    columns, _, _ = definition.partition(", PRIMARY KEY (")
    return dict(re.findall(r"(\w+) (TEXT|INTEGER|BLOB)", columns))
