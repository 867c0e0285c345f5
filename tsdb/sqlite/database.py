"""Database files: connections that survive a crash of the machine, and transactions."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from tsdb.sqlite.errors import SqliteErrors

BUSY_TIMEOUT_S = 10.0
WAL_BYTES = 4 * 1024 * 1024  # Size of the write-ahead file between checkpoints, and at rest.


def open_file(path: Path, *, create: bool) -> sqlite3.Connection:
    """Open a connection for one thread at a time. Transactions are begun explicitly. create: make a missing file."""
    # One slash: after two slashes SQLite reads the first part of the path as a host name.
    url = f"file:/{quote(str(path.absolute()).lstrip('/'))}?mode={'rwc' if create else 'rw'}"
    return sqlite3.connect(url, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False, uri=True)


def configure(connection: sqlite3.Connection, page_bytes: int, *, auto_vacuum: bool = False) -> None:
    """Set pages and journal. auto_vacuum: free pages can be returned to the file system. Only a new file takes this and
    the size of pages."""
    connection.execute(f"PRAGMA page_size = {page_bytes}")
    if auto_vacuum:
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
    connection.execute("PRAGMA journal_mode = WAL")
    # An acknowledged write must survive a crash of the machine, not only of the process: because of `loaded`, memory
    # and log drop the samples that history covers.
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA wal_autocheckpoint = {WAL_BYTES // page_bytes}")
    connection.execute(f"PRAGMA journal_size_limit = {WAL_BYTES}")


@contextmanager
def transaction(connection: sqlite3.Connection, errors: SqliteErrors, where: str, *, write: bool) -> Iterator[None]:
    """A transaction, rolled back on an error. Reads see one moment. SQLite's errors are raised as TsdbError."""
    with errors.translate(where):
        connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            if connection.in_transaction:  # A full disk rolls back by itself.
                connection.execute("ROLLBACK")
            raise
