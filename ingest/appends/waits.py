"""Waits: calls after one fixed time, many of them for each wake of the timer's thread."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from ingest.appends.timer import Timer

TOGETHER_SHARE = 0.2  # Of the time: by so much later a call may come, with those after it.


class Waits:
    """Thread-safe. A gateway begins thousands of waits a second, so a wake of a thread for each would be dear.

    One call of the timer is outstanding at a time, for the oldest wait.
    """

    def __init__(self, timer: Timer, seconds: float) -> None:
        self._timer = timer
        self._seconds = seconds
        self._lock = threading.Lock()  # Guards all below.
        self._due: deque[tuple[float, Callable[[], None]]] = deque()  # Oldest first.
        self._sleeps = False  # A call of the timer is outstanding.

    def begin(self, end: Callable[[], None]) -> None:
        """Call `end` once after the time, or up to TOGETHER_SHARE of it later. It must not block."""
        with self._lock:
            self._due.append((self._timer.now() + self._seconds, end))
            if self._sleeps:
                return
            self._sleeps = True
        self._timer.after(self._seconds, self._sweep)

    def _sweep(self) -> None:
        now = self._timer.now()
        ended: list[Callable[[], None]] = []
        with self._lock:
            while self._due and self._due[0][0] <= now:
                ended.append(self._due.popleft()[1])
            self._sleeps = bool(self._due)
            next_s = max(self._due[0][0] - now, TOGETHER_SHARE * self._seconds) if self._due else 0.0
        if next_s:
            self._timer.after(next_s, self._sweep)
        for number, end in enumerate(ended, start=1):
            try:
                end()
            except Exception:
                # A bug in one call must not keep the others from theirs. The timer logs this one.
                for other in ended[number:]:
                    self._timer.after(0.0, other)
                raise
