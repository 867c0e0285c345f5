"""Claims of refreshes that share answers: one evaluation serves all of one second, and each call has its own errors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from support.servers.logs import wait_until
from tsdb.query.promql.running import QueryCanceled, QueryTimedOut, RunningQueries, RunningQuery
from tsdb.ui.endpoints import AGE_S_MAX, ANSWER_BYTES_MAX, ANSWERS_MAX, Refreshes


class Made:
    """Makes answers b"1", b"2" and so on."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> bytes:
        self.count += 1
        return str(self.count).encode()


class Held:
    """Makes an answer once it may."""

    def __init__(self, answer: bytes = b"held", error: Exception | None = None) -> None:
        self.began = threading.Event()
        self.may_end = threading.Event()
        self._answer = answer
        self._error = error

    def __call__(self) -> bytes:
        self.began.set()
        assert self.may_end.wait(60.0)
        if self._error is not None:
            raise self._error
        return self._answer


def never() -> bytes:
    raise AssertionError("evaluated")


def query(timeout_s: float = 60.0) -> RunningQuery:
    return RunningQueries().open("page", timeout_s)


def test_refreshes_of_one_second_share_an_answer_and_later_ones_do_not() -> None:
    now, made = [0.0], Made()
    refreshes = Refreshes(lambda: now[0])
    assert refreshes.answer("a", query(), made) == b"1"
    now[0] = AGE_S_MAX - 0.001
    assert refreshes.answer("a", query(), made) == b"1"
    now[0] = AGE_S_MAX
    assert refreshes.answer("a", query(), made) == b"2"


def test_other_panels_share_nothing() -> None:
    refreshes, made = Refreshes(), Made()
    assert {refreshes.answer(key, query(), made) for key in ("a", "b", "c")} == {b"1", b"2", b"3"}


def test_answers_are_bounded_in_number_and_size() -> None:
    now, made = [0.0], Made()
    refreshes = Refreshes(lambda: now[0])
    for key in range(ANSWERS_MAX + 1):
        refreshes.answer(key, query(), made)
    assert refreshes.answer(1, query(), made) == b"2"
    assert refreshes.answer(0, query(), made) == str(ANSWERS_MAX + 2).encode()
    large = bytes(ANSWER_BYTES_MAX + 1)
    assert refreshes.answer("large", query(), lambda: large) == large
    assert refreshes.answer("large", query(), lambda: b"small") == b"small"


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


def _begin(threads: ThreadPoolExecutor, refreshes: Refreshes, held: Held) -> Callable[[], bytes]:
    first = threads.submit(refreshes.answer, "a", query(), held)
    assert held.began.wait(60.0)
    return lambda: first.result(60.0)


def test_a_refresh_waits_for_the_evaluation_of_another_call(threads: ThreadPoolExecutor) -> None:
    refreshes, held = Refreshes(lambda: 0.0), Held()
    first = _begin(threads, refreshes, held)
    second = threads.submit(refreshes.answer, "a", query(), never)
    held.may_end.set()
    assert first() == second.result(60.0) == b"held"


def test_after_an_error_the_calls_that_waited_evaluate_themselves(threads: ThreadPoolExecutor) -> None:
    refreshes, held = Refreshes(lambda: 0.0), Held(error=QueryCanceled("evaluation"))
    first = _begin(threads, refreshes, held)
    second = threads.submit(refreshes.answer, "a", query(), lambda: b"own")
    held.may_end.set()
    with pytest.raises(QueryCanceled):
        first()
    assert second.result(60.0) == b"own"
    assert refreshes.answer("a", query(), never) == b"own"


def test_a_call_that_ends_waits_no_longer(threads: ThreadPoolExecutor) -> None:
    refreshes, held = Refreshes(lambda: 0.0), Held()
    first = _begin(threads, refreshes, held)
    gone = query()
    waiting = threads.submit(refreshes.answer, "a", gone, never)
    wait_until(waiting.running)
    gone.end("peer_left")
    for call in (waiting, threads.submit(refreshes.answer, "a", gone, never)):
        with pytest.raises(QueryCanceled):
            call.result(60.0)
    with pytest.raises(QueryTimedOut):
        refreshes.answer("a", query(0.01), never)
    held.may_end.set()
    assert first() == b"held"
