"""The database of an embedded history: tables and connections. Columns mean what docs/formats/cassandra.md says."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tsdb.history.sqlite.errors import translate_sqlite_errors

PAGE_BYTES = 16_384  # Chunks run from a hundred bytes to half a megabyte; small pages would chain the large ones.
BUSY_TIMEOUT_S = 10.0
WAL_PAGES = 1_024  # 16 MiB between checkpoints.

# `ord` is the order of a chunk's key: the plain word is SQL's.
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
    """A connection that any one thread at a time may use; transactions are begun by hand."""
    with translate_sqlite_errors(f"opening {path}"):
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        # `loaded` lets memory and log go: what it covers must survive the machine, not only the process.
        connection.execute("PRAGMA synchronous = FULL")
        connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {WAL_PAGES * PAGE_BYTES}")
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection, where: str) -> Iterator[None]:
    """All of it or nothing. Raises our errors."""
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
