"""Timer: calls functions at a later time, for waits that hold no thread.

A call that raises does not end the thread of a timer. A thread that ends by an error is the timer's `failure`, and the
process ends with it: no waiting request would get an answer again.
"""

from __future__ import annotations

import heapq
import math
import threading
import time
from collections.abc import Callable, Sequence
from itertools import count
from typing import Protocol

from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread, report_failure

IDLE_S = 5.0  # A thread without a call for this long ends; the next call starts another.

log = get_logger(__name__)


class Timer(Protocol):
    """Calls of `after` come from any thread."""

    def now(self) -> float:
        """Seconds on the clock of this timer, which never steps."""

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call the function once, not before `seconds` from now; `seconds` is finite. The call must not block."""


def call_all(timer: Timer, calls: Sequence[Callable[[], None]]) -> None:
    """Run calls that came due together, on the timer's thread. A bug in one keeps no other from its turn."""
    for number, call in enumerate(calls, start=1):
        try:
            call()
        except Exception:
            for other in calls[number:]:
                timer.after(0.0, other)
            raise  # The timer logs it.


class ThreadTimer:
    """Timer with one thread, which exists while calls are due."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()  # Guards all below.
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._sleeps_until = 0.0
        self._error: BaseException | None = None

    def failure(self) -> BaseException | None:
        """The exception that ended the thread, or that kept it from starting; None while it works."""
        return self._error

    def now(self) -> float:
        return time.monotonic()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        assert not math.isnan(seconds), "a time that is no number has no place in the order of the calls"
        at = time.monotonic() + seconds
        with self._changed:
            heapq.heappush(self._due, (at, next(self._numbers), call))
            if self._thread is None:
                self._start_locked()
            elif at < self._sleeps_until:
                self._changed.notify()

    def _start_locked(self) -> None:
        self._thread = new_thread(self._run_guarded, self._name)
        try:
            self._thread.start()
        except RuntimeError as error:  # The operating system has no thread left. The callers must not fail for it.
            self._fail(error)

    def _run_guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        self._error = error
        report_failure(error, self._name)

    def _run(self) -> None:
        while True:
            with self._changed:
                call = self._next_locked()
                if call is None:
                    self._thread = None
                    return
            try:
                call()
            except Exception as error:
                # A bug in one call must not prevent the other calls, or their requests would never be answered.
                log.error("a call of a timer failed", thread=self._name, error=str(error), exc_info=True)

    def _next_locked(self) -> Callable[[], None] | None:
        """The next call that is due. None after IDLE_S without a call."""
        idle_at = time.monotonic() + IDLE_S
        while True:
            now = time.monotonic()
            if self._due and self._due[0][0] <= now:
                self._sleeps_until = 0.0
                return heapq.heappop(self._due)[2]
            if not self._due and now >= idle_at:
                return None
            self._sleeps_until = self._due[0][0] if self._due else idle_at
            self._changed.wait(min(self._sleeps_until - now, threading.TIMEOUT_MAX))
