"""The database of an embedded history has tables, connections and errors. Columns: docs/formats/cassandra.md.

The statements of an embedded history.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from tsdb.model.errors import ConfigMismatch
from tsdb.sqlite.database import configure, open_file
from tsdb.sqlite.errors import SqliteErrors

PAGE_BYTES = 16_384  # Rows are chunks of kilobytes, which small pages would split into chains.
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

PUT_CHUNK = (
    "INSERT INTO chunks (pack_id, window_start, ord, kind, part, value) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET value = excluded.value"
)
DELETE_CHUNK = "DELETE FROM chunks WHERE pack_id = ? AND window_start = ? AND ord = ? AND kind = ? AND part = ?"
_CHUNK_COLUMNS = "SELECT pack_id, window_start, ord, kind, part, {} FROM chunks WHERE "
_OF_PACK = "pack_id = ? AND window_start >= ? AND window_start < ? ORDER BY window_start, ord, kind, part"
READ_CHUNKS = _CHUNK_COLUMNS.format("value") + _OF_PACK
# The index of the primary key has all columns of this statement, so it reads no value.
READ_KEYS = "SELECT pack_id, window_start, ord, kind, part FROM chunks WHERE " + _OF_PACK
SCAN_CHUNKS = _CHUNK_COLUMNS.format("value") + (
    "pack_id >= ? AND pack_id <= ? ORDER BY pack_id, window_start, ord, kind, part"
)
NEXT_PACK = "SELECT min(pack_id) FROM chunks WHERE pack_id >= ? AND pack_id <= ?"
FILE_BYTES = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
PUT_LOADED = (
    "INSERT INTO loaded (topic_id, partition, position, emitted_through_ms) VALUES (?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET position = excluded.position, emitted_through_ms = excluded.emitted_through_ms"
    " WHERE (excluded.position, excluded.emitted_through_ms) > (position, emitted_through_ms)"
)
LOADED_TOPICS = "SELECT DISTINCT topic_id FROM loaded ORDER BY topic_id"
READ_LOADED = "SELECT topic_id, partition, position, emitted_through_ms FROM loaded WHERE topic_id IN (?, ?)"
_PUT_HOLE = (
    "INSERT INTO holes (partition, start_ms, end_ms, pack_id, record_offset, reason, accepted)"
    " VALUES (?, ?, ?, ?, ?, ?, "
)
PUT_HOLE = f"{_PUT_HOLE} 0) ON CONFLICT DO UPDATE SET reason = excluded.reason"
ACCEPT_HOLE = f"{_PUT_HOLE} 1) ON CONFLICT DO UPDATE SET reason = excluded.reason, accepted = 1"
DELETE_HOLE = (
    "DELETE FROM holes WHERE partition = ? AND start_ms = ? AND end_ms = ? AND pack_id = ? AND record_offset = ?"
)
READ_HOLES = (
    "SELECT partition, start_ms, end_ms, pack_id, record_offset, reason, accepted FROM holes"
    " WHERE start_ms < ? AND end_ms > ?"
)
PUT_SERIES = (
    "INSERT INTO series (epoch, name, series_id, pack_id, partition, labels) VALUES (?, ?, ?, ?, ?, ?)"
    " ON CONFLICT DO UPDATE SET pack_id = excluded.pack_id, partition = excluded.partition, labels = excluded.labels"
)
PUT_METRIC_NAME = "INSERT OR IGNORE INTO metric_names (epoch, name) VALUES (?, ?)"
READ_EPOCHS = "SELECT DISTINCT epoch FROM metric_names ORDER BY epoch"
READ_METRIC_NAMES = "SELECT name FROM metric_names WHERE epoch = ? ORDER BY name"
# Rows are read by key, because an open cursor would keep the WAL from shrinking during a long scan.
SCAN_SERIES = (
    "SELECT epoch, name, series_id, pack_id, partition, labels FROM series"
    " WHERE (epoch, name, series_id) > (?, ?, ?) ORDER BY epoch, name, series_id LIMIT ?"
)
READ_SERIES = "SELECT series_id, pack_id, partition, labels FROM series WHERE epoch = ? AND name = ?"


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
