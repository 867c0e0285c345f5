"""The embedded history: its errors, and the state after the end of its writer."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from support.servers.histories import META, WITHIN_S, Answers, announcement, row, written
from tsdb.history.interface import WindowRange
from tsdb.history.open import open_history, open_history_admin
from tsdb.history.shared_settings import ensure_history, history_differences, shared_rows
from tsdb.history.sqlite import writer
from tsdb.history.sqlite.database import ERRORS
from tsdb.model.errors import ConfigMismatch, CorruptData, InvalidRequest, TsdbError, Unavailable


@pytest.fixture
def url(tmp_path: Path) -> str:
    url = f"sqlite:///{tmp_path}/history.db"
    with open_history_admin(url) as admin:
        ensure_history(admin, META)
    return url


def change(url: str, statement: str) -> None:
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        connection.execute(statement)


@pytest.mark.parametrize(
    ("code", "kind", "reason"),
    [
        (sqlite3.SQLITE_FULL, Unavailable, "disk_full"),
        (sqlite3.SQLITE_BUSY, Unavailable, "store_locked"),
        (sqlite3.SQLITE_CORRUPT, CorruptData, "corrupt_data"),
        (sqlite3.SQLITE_MISUSE, TsdbError, "internal"),
    ],
)
def test_the_class_of_an_error_is_the_next_action(code: int, kind: type[TsdbError], reason: str) -> None:
    error = sqlite3.OperationalError("what SQLite said")
    error.sqlite_errorcode, error.sqlite_errorname = code, "NAME"
    with pytest.raises(kind) as ours, ERRORS.translate("here"):
        raise error
    assert type(ours.value) is kind
    assert ours.value.reason == reason


def test_a_missing_history_is_refused_with_a_hint_to_create_it(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/history.db"
    with open_history_admin(url) as admin:
        [line] = history_differences(admin, META)
        assert f"{tmp_path}/history.db does not exist: `tsdb history create`" in line
    with open_history(url) as store:
        with pytest.raises(ConfigMismatch, match="tsdb history create") as refused:
            store.loaded("topic")
        assert refused.value.reason == "store_not_created"
        with pytest.raises(ConfigMismatch, match="tsdb history create"):
            written(lambda done: store.write(row(1, 0).key, b"", done))
    assert list(tmp_path.iterdir()) == []


def test_tables_that_are_missing_are_named(tmp_path: Path) -> None:
    (tmp_path / "history.db").write_bytes(b"")
    with open_history_admin(f"sqlite:///{tmp_path}/history.db") as admin:
        assert history_differences(admin, META) == [
            f"table {table} is missing: run `tsdb history create`"
            for table in ("shared", "chunks", "series", "metric_names", "loaded", "holes")
        ]


def test_a_changed_table_is_named(url: str) -> None:
    change(url, "ALTER TABLE chunks RENAME COLUMN part TO piece")
    with open_history_admin(url) as admin:
        assert history_differences(admin, META) == [
            "table chunks: column part is missing, must be INTEGER",
            "table chunks: column piece is INTEGER, must be absent",
        ]


def test_a_history_without_shared_settings_is_refused(url: str) -> None:
    change(url, "DELETE FROM shared")
    with open_history_admin(url) as admin:
        assert history_differences(admin, META) == ["no shared settings are there: run `tsdb history create`"]


def test_a_ttl_is_refused(url: str) -> None:
    with open_history_admin(url) as admin, pytest.raises(InvalidRequest) as refused:
        admin.create(shared_rows(META), ttl_days=3)
    assert refused.value.reason == "no_ttl"


def test_a_row_that_cannot_be_ours_is_corrupt_data(url: str) -> None:
    change(url, "INSERT INTO chunks VALUES (1, 0, 5, 77, 0, x'00')")
    with open_history(url) as store, pytest.raises(CorruptData, match="kind 77"):
        list(store.read([1], WindowRange(0, 1)))


def test_a_file_that_is_no_database_is_corrupt_data(tmp_path: Path) -> None:
    path = tmp_path / "history.db"
    path.write_bytes(b"no database at all" * 1000)
    with open_history(f"sqlite:///{path}") as store, pytest.raises(CorruptData):
        store.loaded("topic")


def test_a_missing_folder_is_an_error_for_every_write(tmp_path: Path) -> None:
    with open_history(f"sqlite:///{tmp_path}/missing/history.db") as store:
        answers = Answers()
        store.write(row(1, 0).key, b"", answers)
        (error,) = answers.wait(1)
        assert isinstance(error, ConfigMismatch)
        with pytest.raises(ConfigMismatch):
            store.write(row(1, 0).key, b"", answers)


def test_a_callback_that_fails_is_raised_by_the_next_write_and_the_others_are_answered(url: str) -> None:
    answers, queued = Answers(), threading.Event()

    def fail(error: TsdbError | None) -> None:
        assert queued.wait(60.0)
        raise ZeroDivisionError

    with open_history(url) as store:
        store.write(row(1, 0).key, b"", fail)
        store.write(row(1, 1).key, b"", answers)
        queued.set()
        answers.wait(1)
        with pytest.raises(ZeroDivisionError):
            store.write(row(1, 2).key, b"", answers)


@pytest.fixture
def transactions(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Kinds of the writes of each transaction. A group with a row of series makes the next one rest for long."""
    found: list[list[str]] = []
    store = writer.HistoryWriter._store

    def recorded(self: writer.HistoryWriter, connection: sqlite3.Connection, group: Any) -> Any:
        found.append([write.kind for write in group])
        return store(self, connection, group)

    monkeypatch.setattr(writer.HistoryWriter, "_store", recorded)
    monkeypatch.setattr(writer, "REST_S_A_SERIES", 2 * WITHIN_S)
    monkeypatch.setattr(writer, "REST_S_MAX", 2 * WITHIN_S)
    return found


def test_rows_of_series_gather_until_another_row_comes(url: str, transactions: list[list[str]]) -> None:
    with open_history(url) as store:
        written(lambda done: store.write_series(announcement(7, name="up", host="a"), 0, done))
        first, answers = len(transactions), Answers()
        for host in "bcd":
            store.write_series(announcement(7, name="up", host=host), 0, answers)
        chunk = row(1, 0)
        store.write(chunk.key, chunk.value, answers)
        assert answers.wait(4) == [None] * 4
    assert transactions[first:] == [["series", "series", "series", "chunk"]]


def test_the_end_of_a_history_waits_for_no_further_rows_of_series(url: str, transactions: list[list[str]]) -> None:
    store = open_history(url)
    written(lambda done: store.write_series(announcement(7, name="up", host="a"), 0, done))
    answers = Answers()
    store.write_series(announcement(7, name="up", host="b"), 0, answers)
    store.close()
    assert answers.all == [None]
