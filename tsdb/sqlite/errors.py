"""Translates SQLite errors to TsdbError: one table for every database, one context manager."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tsdb.model.errors import CorruptData, TsdbError, Unavailable

RETRY_AFTER_S = 1.0

_DISK = {sqlite3.SQLITE_FULL: "disk_full", sqlite3.SQLITE_IOERR: "disk_error"}
_LOCKED = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED, sqlite3.SQLITE_PROTOCOL}
_UNAVAILABLE = {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_AUTH,
    sqlite3.SQLITE_INTERRUPT,
    sqlite3.SQLITE_NOMEM,
}
_CORRUPT = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_FORMAT}


@dataclass(frozen=True, slots=True)
class SqliteErrors:
    """The errors of one kind of database.

    unavailable, locked: reasons of its Unavailable errors. subject: begins each message. missing_table: makes the error
    for a missing table from its message; TsdbError where a missing table is a bug.
    """

    unavailable: str
    locked: str
    subject: str = ""
    missing_table: Callable[[str], TsdbError] = TsdbError

    def to_error(self, error: sqlite3.Error, where: str) -> TsdbError:
        """The TsdbError for a SQLite error. A code that is not in the table is a bug of our code."""
        primary = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        name = getattr(error, "sqlite_errorname", type(error).__name__)
        message = f"{self.subject}{where}: {error} ({name})"
        if primary in _CORRUPT:
            return CorruptData(message)
        reason = self._reason(primary)
        if reason is not None:
            return Unavailable(message, reason=reason, retry_after_s=RETRY_AFTER_S)
        if "no such table" in str(error):
            return self.missing_table(message)
        return TsdbError(message)

    @contextmanager
    def translate(self, where: str) -> Iterator[None]:
        """Raise SQLite's exceptions as TsdbError."""
        try:
            yield
        except sqlite3.Error as error:
            raise self.to_error(error, where) from error

    def _reason(self, primary: int) -> str | None:
        if primary in _LOCKED:
            return self.locked
        return self.unavailable if primary in _UNAVAILABLE else _DISK.get(primary)
