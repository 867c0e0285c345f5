"""A group writer commits waiting writes together, answers each, and runs jobs between groups."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from support.servers.logs import wait_until
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.threads import watched_threads
from tsdb.sqlite.database import configure, open_file, transaction
from tsdb.sqlite.errors import SqliteErrors
from tsdb.sqlite.writer import GroupWriter

WITHIN_S = 60.0
ERRORS = SqliteErrors(unavailable="away", locked="locked")


@dataclass
class Number:
    """A write of one number. weight: its bytes."""

    value: int
    weight: int = 1


class NumbersWriter(GroupWriter[Number, int]):
    """Stores numbers; a negative number refuses its group. The outcome is the double."""

    def __init__(self, path: Path) -> None:
        super().__init__("numbers-writer", "numbers", path)
        self.groups: list[int] = []
        self.outcomes: list[int | TsdbError] = []
        self.on_answer: Callable[[int | TsdbError], None] = lambda outcome: None

    def _connect(self) -> sqlite3.Connection:
        with ERRORS.translate("opening"):
            return open_file(self._path, create=False)

    def _store(self, connection: sqlite3.Connection, group: Sequence[Number]) -> list[int | TsdbError]:
        self.groups.append(len(group))
        with transaction(connection, ERRORS, "writing", write=True):
            connection.executemany("INSERT INTO numbers VALUES (?)", [(write.value,) for write in group])
            if any(write.value < 0 for write in group):
                raise Unavailable("no negative numbers")
        return [2 * write.value for write in group]

    def _answer(self, write: Number, outcome: int | TsdbError) -> None:
        self.outcomes.append(outcome)
        self.on_answer(outcome)

    def _closed_error(self) -> TsdbError:
        return Unavailable("numbers are closed", reason="closed")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "numbers.db"
    with closing(open_file(path, create=True)) as connection:
        configure(connection, 4096)
        connection.execute("CREATE TABLE numbers (value INTEGER)")
    return path


@pytest.fixture
def writer(path: Path) -> Iterator[NumbersWriter]:
    writer = NumbersWriter(path)
    yield writer
    writer.close()


def stored(path: Path) -> list[int]:
    with closing(open_file(path, create=False)) as connection:
        return [row[0] for row in connection.execute("SELECT value FROM numbers ORDER BY rowid")]


def test_writes_that_wait_are_committed_together_and_answered_in_order(writer: NumbersWriter, path: Path) -> None:
    busy, released = threading.Event(), threading.Event()

    def wait(outcome: int | TsdbError) -> None:
        busy.set()
        assert released.wait(WITHIN_S)

    writer.on_answer = wait
    writer.put(Number(0))
    assert busy.wait(WITHIN_S)
    for value in (1, 2, 3):
        writer.put(Number(value))
    released.set()
    writer.close()
    assert writer.groups == [1, 3]
    assert writer.outcomes == [0, 2, 4, 6]
    assert stored(path) == [0, 1, 2, 3]


def test_a_refused_group_stores_nothing_and_the_writer_goes_on(writer: NumbersWriter, path: Path) -> None:
    answered = threading.Event()
    writer.on_answer = lambda outcome: answered.set()
    writer.put(Number(-1))
    assert answered.wait(WITHIN_S)
    writer.put(Number(1))
    writer.close()
    refused, done = writer.outcomes
    assert isinstance(refused, Unavailable)
    assert done == 2
    assert stored(path) == [1]


def test_a_job_runs_on_the_writers_thread_and_its_error_is_raised(writer: NumbersWriter) -> None:
    names: list[str] = []
    writer.run(lambda connection: names.append(threading.current_thread().name), WITHIN_S)
    assert names == ["numbers-writer"]

    def broken(connection: sqlite3.Connection) -> None:
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        writer.run(broken, WITHIN_S)
    writer.run(lambda connection: names.append("next"), WITHIN_S)
    assert names[1:] == ["next"]


def test_a_job_that_takes_too_long_names_the_database(writer: NumbersWriter) -> None:
    released = threading.Event()
    with pytest.raises(Unavailable, match=r"numbers did not write within 0\.01 s") as late:
        writer.run(lambda connection: assert_set(released), 0.01)
    assert late.value.reason == "timeout"
    released.set()


def assert_set(event: threading.Event) -> None:
    assert event.wait(WITHIN_S)


def test_a_thread_that_fails_answers_every_write_and_the_next_raises_its_error(tmp_path: Path) -> None:
    writer = NumbersWriter(tmp_path / "missing.db")
    answered = threading.Event()
    writer.on_answer = lambda outcome: answered.set()
    writer.put(Number(1))
    assert answered.wait(WITHIN_S)
    with pytest.raises(Unavailable, match="opening") as failed:
        writer.put(Number(2))
    assert failed.value.reason == "away"
    assert writer.outcomes == [failed.value]
    writer.close()


def test_a_closed_writer_refuses_writes(writer: NumbersWriter) -> None:
    writer.close()
    writer.close()
    with pytest.raises(Unavailable, match="numbers are closed"):
        writer.put(Number(1))


def test_a_bug_while_writing_answers_the_group_and_the_jobs_in_hand(writer: NumbersWriter) -> None:
    busy, released, jobs = threading.Event(), threading.Event(), []

    def wait(outcome: int | TsdbError) -> None:
        busy.set()
        assert released.wait(WITHIN_S)

    writer.on_answer = wait
    writer.put(Number(0))
    assert busy.wait(WITHIN_S)
    writer._store = broken_store  # type: ignore[method-assign]
    for value in (1, 2):
        writer.put(Number(value))
    job = threading.Thread(target=lambda: jobs.append(raised(lambda: writer.run(lambda connection: None, WITHIN_S))))
    job.start()
    wait_until(lambda: bool(writer._jobs))
    with watched_threads() as failures:
        released.set()
        job.join(WITHIN_S)
        wait_until(lambda: failures.failure() is not None)
    assert [type(outcome) for outcome in writer.outcomes] == [int, TsdbError, TsdbError]
    assert [str(error) for error in jobs] == ["a bug"]


def broken_store(connection: sqlite3.Connection, group: Sequence[Number]) -> list[int | TsdbError]:
    raise ValueError("a bug")


def raised(call: Callable[[], None]) -> BaseException | None:
    try:
        call()
    except BaseException as error:
        return error
    return None
