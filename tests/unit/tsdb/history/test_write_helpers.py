"""Shared parts of writes: the bound of bytes in flight, group answers, names written once."""

from __future__ import annotations

import threading

import pytest

from tsdb.history.interface import OnDone
from tsdb.history.known_names import KnownNames
from tsdb.history.settings import CassandraAccess, HistorySettings
from tsdb.history.writes import WriteGroup, reserve, write_budget, write_sync
from tsdb.model.errors import ConfigMismatch, Overloaded, TsdbError, Unavailable


def test_a_large_write_may_start_alone_and_nothing_beside_it() -> None:
    inflight = write_budget(100)
    reserve(inflight, 1000, 0)
    with pytest.raises(Overloaded, match=r"1000 bytes wait .* 1 more .* limit is 100"):
        reserve(inflight, 1, 0.01)
    inflight.give_back(1000)
    reserve(inflight, 60, 0)
    reserve(inflight, 40, 0)
    with pytest.raises(Overloaded):
        reserve(inflight, 1, 0.01)


def test_a_waiting_write_takes_room_that_becomes_free() -> None:
    inflight = write_budget(100)
    reserve(inflight, 80, 0)
    threading.Timer(0.05, inflight.give_back, (80,)).start()
    reserve(inflight, 50, 10)


def test_closing_waits_for_bytes_in_flight_and_refuses_new_ones() -> None:
    inflight = write_budget(100)
    reserve(inflight, 80, 0)
    inflight.close()
    assert not inflight.wait_idle(0.01)
    threading.Timer(0.05, inflight.give_back, (80,)).start()
    assert inflight.wait_idle(10)
    with pytest.raises(Unavailable) as closed:
        reserve(inflight, 1, 10)
    assert closed.value.reason == "store_closed"


def test_joined_answers_once_after_the_last_with_the_first_error() -> None:
    answers: list[TsdbError | None] = []
    first, second = Unavailable("first"), Unavailable("second")
    group = WriteGroup(3, answers.append)
    group(first)
    group(None)
    assert answers == []
    group(second)
    assert answers == [first]


def ensure(names: KnownNames, pair: tuple[int, bytes]) -> tuple[list[OnDone], list[TsdbError | None]]:
    """(on_done of the write if one was begun, answers to the caller)."""
    writes: list[OnDone] = []
    answers: list[TsdbError | None] = []
    names.ensure(pair, writes.append, answers.append)
    return writes, answers


def unexpected(what: object) -> None:
    pytest.fail(f"called with {what}")


def test_a_name_is_written_once_and_every_waiter_gets_the_answer() -> None:
    names = KnownNames()
    (write,), first = ensure(names, (1, b"up"))
    none, second = ensure(names, (1, b"up"))
    assert (none, first, second) == ([], [], [])
    write(None)
    assert (first, second) == ([None], [None])
    assert ensure(names, (1, b"up")) == ([], [None])
    assert ensure(names, (2, b"up"))[1] == []


def test_a_name_whose_write_failed_is_written_again() -> None:
    names = KnownNames()
    failed = Unavailable("no")
    (write,), first = ensure(names, (1, b"up"))
    _, second = ensure(names, (1, b"up"))
    write(failed)
    assert (first, second) == ([failed], [failed])
    (write,), _ = ensure(names, (1, b"up"))
    write(None)


def test_a_write_of_a_name_that_cannot_begin_is_an_error_for_all_waiters() -> None:
    names = KnownNames()
    others: list[TsdbError | None] = []
    full = Overloaded("full")

    def refuse(on_done: OnDone) -> None:
        names.ensure((1, b"up"), unexpected, others.append)
        raise full

    with pytest.raises(Overloaded):
        names.ensure((1, b"up"), refuse, unexpected)
    assert others == [full]
    assert len(ensure(names, (1, b"up"))[0]) == 1


def test_known_names_are_bounded() -> None:
    names = KnownNames(names_max=3)
    for number in range(4):
        (write,), _ = ensure(names, (number, b"up"))
        write(None)
    assert len(ensure(names, (0, b"up"))[0]) == 1
    assert ensure(names, (3, b"up"))[0] == []


def test_waiting_for_a_write_raises_its_error() -> None:
    write_sync(lambda done: done(None))
    with pytest.raises(Unavailable, match="away"):
        write_sync(lambda done: done(Unavailable("away")))
    with pytest.raises(Unavailable, match="did not answer") as late:
        write_sync(lambda done: None, timeout_s=0.01)
    assert late.value.reason == "timeout"


@pytest.mark.parametrize(
    "values",
    [{"write_timeout_s": 0.0}, {"part_bytes_max": -1}, {"reads_ahead_max": 0}, {"inflight_bytes_max": 1000}],
)
def test_settings_out_of_range_are_refused_by_name(values: dict[str, float]) -> None:
    with pytest.raises(ConfigMismatch, match=next(iter(values))):
        HistorySettings(**values)  # type: ignore[arg-type]


def test_a_password_is_in_no_repr_and_a_missing_file_is_named() -> None:
    assert "hush" not in repr(HistorySettings(access=CassandraAccess(password="hush")))
    with pytest.raises(ConfigMismatch, match="password_file"):
        CassandraAccess(password_file="/nonexistent/secret").secret()
