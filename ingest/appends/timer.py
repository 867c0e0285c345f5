"""Timer: calls functions at a later time, for waits that hold no thread."""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable
from itertools import count
from typing import Protocol

from tsdb.ops.logs import get_logger

IDLE_S = 5.0  # A thread without a call for this long ends; the next call starts another.

log = get_logger(__name__)


class Timer(Protocol):
    """Calls of `after` come from any thread."""

    def now(self) -> float:
        """Seconds on the clock of this timer, which never steps."""

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call once, not before `seconds` from now. The call must not block."""


class ThreadTimer:
    """Timer with one thread, which exists while calls are due."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._changed = threading.Condition()  # Guards all below.
        self._due: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = count()
        self._thread: threading.Thread | None = None
        self._sleeps_until = 0.0

    def now(self) -> float:
        return time.monotonic()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        at = time.monotonic() + seconds
        with self._changed:
            heapq.heappush(self._due, (at, next(self._numbers), call))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
            elif at < self._sleeps_until:
                self._changed.notify()

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
                # A bug in one call must not keep the others from theirs: requests would never be answered.
                log.error("a call of a timer failed", thread=self._name, error=str(error), exc_info=True)

    def _next_locked(self) -> Callable[[], None] | None:
        """The next call, once it is due; None after IDLE_S without any."""
        idle_at = time.monotonic() + IDLE_S
        while True:
            now = time.monotonic()
            if self._due and self._due[0][0] <= now:
                self._sleeps_until = 0.0
                return heapq.heappop(self._due)[2]
            if not self._due and now >= idle_at:
                return None
            self._sleeps_until = self._due[0][0] if self._due else idle_at
            self._changed.wait(self._sleeps_until - now)
