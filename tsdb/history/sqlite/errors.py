"""SQLite errors of a history translated to TsdbError: one table, one context manager."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from tsdb.model.errors import ConfigMismatch, CorruptData, TsdbError, Unavailable

RETRY_AFTER_S = 1.0

_UNAVAILABLE = {
    sqlite3.SQLITE_FULL: "disk_full",
    sqlite3.SQLITE_IOERR: "disk_error",
    sqlite3.SQLITE_CANTOPEN: "unavailable",
    sqlite3.SQLITE_READONLY: "unavailable",
    sqlite3.SQLITE_PERM: "unavailable",
    sqlite3.SQLITE_AUTH: "unavailable",
    sqlite3.SQLITE_BUSY: "store_locked",
    sqlite3.SQLITE_LOCKED: "store_locked",
    sqlite3.SQLITE_PROTOCOL: "store_locked",
    sqlite3.SQLITE_INTERRUPT: "unavailable",
    sqlite3.SQLITE_NOMEM: "unavailable",
}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


def to_error(error: sqlite3.Error, where: str) -> TsdbError:
    """The TsdbError for a SQLite error. A code that is not in the table is a bug of this code."""
    primary = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    message = f"history, {where}: {error} ({getattr(error, 'sqlite_errorname', type(error).__name__)})"
    if primary in _CORRUPT:
        return CorruptData(message)
    if primary in _UNAVAILABLE:
        return Unavailable(message, reason=_UNAVAILABLE[primary], retry_after_s=RETRY_AFTER_S)
    if "no such table" in str(error):
        return ConfigMismatch(f"{message}: run `tsdb history create`", reason="store_not_created")
    return TsdbError(message)


@contextmanager
def translate_sqlite_errors(where: str) -> Iterator[None]:
    """Raise SQLite's exceptions as TsdbError."""
    try:
        yield
    except sqlite3.Error as error:
        raise to_error(error, where) from error
