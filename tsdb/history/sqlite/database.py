"""The database of an embedded history: tables, connections and errors. Columns: docs/formats/cassandra.md."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from tsdb.model.errors import ConfigMismatch
from tsdb.sqlite.database import configure, open_file
from tsdb.sqlite.errors import SqliteErrors

PAGE_BYTES = 16_384  # Rows are chunks of kilobytes; small pages would chain them.
ERRORS = SqliteErrors(
    unavailable="unavailable",
    locked="store_locked",
    subject="history, ",
    missing_table=lambda message: ConfigMismatch(f"{message}: run `tsdb history create`", reason="store_not_created"),
)

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
    with ERRORS.translate(f"opening {path}"):
        return _open(path, create=False)


def create(path: Path) -> sqlite3.Connection:
    """See connect; creates the folder and an empty file where they are missing."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigMismatch(f"the history's folder cannot be made: {error}", reason="store_not_created") from None
    if path.is_dir():
        raise _missing(path, "is a folder")
    with ERRORS.translate(f"making {path}"):
        return _open(path, create=True)


def _open(path: Path, *, create: bool) -> sqlite3.Connection:
    connection = open_file(path, create=create)
    configure(connection, PAGE_BYTES)
    return connection


def _missing(path: Path, why: str) -> ConfigMismatch:
    return ConfigMismatch(
        f"history {path} {why}: `tsdb history create` and `tsdb standalone` make one", reason="store_not_created"
    )


def table_columns(definition: str) -> dict[str, str]:
    """Column names and types of a table of TABLES."""
    columns, _, _ = definition.partition(", PRIMARY KEY (")
    return dict(re.findall(r"(\w+) (TEXT|INTEGER|BLOB)", columns))
