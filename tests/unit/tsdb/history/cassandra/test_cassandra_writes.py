"""Writes to a session that refuses, answers late or never: each is answered once, none is sent twice at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from cassandra import OperationTimedOut
from cassandra.cluster import NoHostAvailable
from cassandra.connection import ConnectionBusy

from support.servers.histories import Answers
from tsdb.history.cassandra.reads import PAGE_ROWS, PageSize
from tsdb.history.cassandra.writes import CassandraWrites, Write
from tsdb.history.settings import HistorySettings
from tsdb.history.statement_metrics import CHUNK
from tsdb.model.errors import Overloaded, Unavailable

BUSY = NoHostAvailable("no room", {"host": ConnectionBusy("overloaded")})


class FakeFuture:
    def __init__(self, error: Exception | None) -> None:
        self.error = error

    def add_callbacks(self, callback: Callable[[object], None], errback: Callable[[Exception], None]) -> None:
        if self.error is None:
            callback(None)
        else:
            errback(self.error)


class FakeSession:
    """Answers each statement with the next of `answers`, the last for ever."""

    def __init__(self, *answers: Exception | None) -> None:
        self.answers = list(answers)
        self.sent: list[object] = []

    def execute_async(self, statement: object) -> FakeFuture:
        self.sent.append(statement)
        return FakeFuture(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])


def writes(**settings: Any) -> CassandraWrites:
    return CassandraWrites(HistorySettings(**settings))


def write(session: FakeSession, statement: object, answers: Answers, size: int = 10) -> Write:
    return Write(CHUNK, session, statement, answers, size)


def test_a_write_that_found_no_room_is_sent_again_in_order() -> None:
    session, answers = FakeSession(BUSY, BUSY, BUSY, None), Answers()
    some = writes()
    for number in range(5):
        some.put(write(session, number, answers))
    assert answers.wait(5, 10) == [None] * 5
    assert session.sent == [0, 0, 0, 0, 1, 2, 3, 4]
    some.close()


def test_a_write_without_room_fails_at_its_timeout() -> None:
    session, answers = FakeSession(BUSY), Answers()
    some = writes(write_timeout_s=0.2)
    some.put(write(session, 0, answers))
    (error,) = answers.wait(1, 10)
    assert isinstance(error, Overloaded)
    assert error.reason == "connection_busy"
    some.close()


def test_other_errors_are_answered_at_once() -> None:
    session, answers = (
        FakeSession(OperationTimedOut(), NoHostAvailable("none", {}), RuntimeError("shut down")),
        Answers(),
    )
    some = writes()
    for number in range(3):
        some.put(write(session, number, answers))
    first, second, third = answers.wait(3, 10)
    assert isinstance(first, Unavailable)
    assert first.reason == "timeout"
    assert isinstance(second, Unavailable)
    assert third is not None
    assert third.reason == "internal"
    some.close()


def test_a_session_that_raises_is_an_answer_too() -> None:
    class ClosedSession(FakeSession):
        def execute_async(self, statement: object) -> FakeFuture:
            raise BUSY

    answers = Answers()
    some = writes()
    some.put(write(ClosedSession(None), 0, answers))
    (error,) = answers.wait(1, 10)
    assert isinstance(error, Overloaded)
    some.close()
    with pytest.raises(Unavailable):
        some.put(write(FakeSession(None), 0, answers))


def test_page_size_follows_the_size_of_rows() -> None:
    size = PageSize(1_000_000)
    assert size.rows() == 15
    size.saw(10, 5_000_000)
    assert size.rows() == PAGE_ROWS[0]
    for _ in range(100):
        size.saw(500, 50_000)
    assert size.rows() == PAGE_ROWS[1]
    size.saw(1, 100_000)
    assert size.rows() == 10
