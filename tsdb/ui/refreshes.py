"""Refreshes: pages that refresh the same panel share one answer, so that twenty of them cost about as much as one."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future

from tsdb.ops.metrics import counter
from tsdb.query.promql.running import RunningQuery

AGE_S_MAX = 1.0  # A page with live tail refreshes this often, so it misses nothing for longer than one refresh.
ANSWERS_MAX = 32
ANSWER_BYTES_MAX = 1 << 20

_refreshes = counter(
    "tsdb_ui_refreshes_total",
    "Refreshes of panels, by whether they were evaluated or given the answer of the same panel of another page.",
    "kind",
    ("evaluated", "shared"),
)


class Refreshes:
    """The answers of the last second, at most ANSWERS_MAX. An answer above ANSWER_BYTES_MAX is shared only with calls
    that wait for it. Thread-safe."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()  # Guards _answers; an innermost lock.
        # By key: the time at which the evaluation began, and its answer. The oldest is first.
        self._answers: OrderedDict[Hashable, tuple[float, Future[bytes]]] = OrderedDict()

    def answer(self, key: Hashable, query: RunningQuery, make: Callable[[], bytes]) -> bytes:
        """The answer of `make`, or one of the same key whose evaluation began at most AGE_S_MAX ago. query: the call;
        its end ends a wait for another call's evaluation. Raises the errors of `make`, QueryCanceled, QueryTimedOut."""
        while True:
            found, is_own = self._found(key)
            if is_own:
                return self._make(key, found, make)
            if _answered(found, query):
                _refreshes.labels("shared").inc()
                return found.result()

    def _found(self, key: Hashable) -> tuple[Future[bytes], bool]:
        """The answer of a key, and whether the caller has to make it."""
        now = self._now()
        with self._lock:
            while self._answers and next(iter(self._answers.values()))[0] + AGE_S_MAX <= now:
                self._answers.popitem(last=False)
            if key in self._answers:
                return self._answers[key][1], False
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.popitem(last=False)
            answer = Future[bytes]()
            self._answers[key] = now, answer
            return answer, True

    def _make(self, key: Hashable, answer: Future[bytes], make: Callable[[], bytes]) -> bytes:
        _refreshes.labels("evaluated").inc()
        try:
            made = make()
        except BaseException:
            self._forget(key, answer)
            answer.cancel()  # Calls that wait evaluate it themselves: the error may be of this call alone.
            raise
        if len(made) > ANSWER_BYTES_MAX:
            self._forget(key, answer)
        answer.set_result(made)
        return made

    def _forget(self, key: Hashable, answer: Future[bytes]) -> None:
        with self._lock:
            if key in self._answers and self._answers[key][1] is answer:
                del self._answers[key]


def _answered(answer: Future[bytes], query: RunningQuery) -> bool:
    """Wait for an answer; whether there is one. Raises QueryCanceled, QueryTimedOut."""
    ended = threading.Event()
    answer.add_done_callback(lambda _: ended.set())
    if not query.add_callback(ended.set):
        ended.set()  # The query has ended.
    ended.wait(max(0.0, query.time_remaining()))
    query.check()
    return not answer.cancelled()
