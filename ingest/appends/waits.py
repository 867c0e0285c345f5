"""AppendWaits: calls functions after a fixed time. Waits that begin together end with one wake of the timer."""

from __future__ import annotations

import threading
from collections.abc import Callable

from ingest.appends.timer import Timer, call_all


class AppendWaits:
    """Thread-safe. A gateway begins thousands of waits a second, so a wake of a thread for each would be dear."""

    def __init__(self, timer: Timer, seconds: float) -> None:
        self._timer = timer
        self._seconds = seconds
        self._lock = threading.Lock()  # Guards _begun.
        self._begun: list[Callable[[], None]] = []  # A call of the timer is outstanding while there is one.

    def begin(self, end: Callable[[], None]) -> None:
        """Call `end` once, at most the time later, in the order of the begins. It must not block."""
        with self._lock:
            self._begun.append(end)
            if len(self._begun) > 1:
                return
        self._timer.after(self._seconds, self._end_all)

    def _end_all(self) -> None:
        with self._lock:
            begun, self._begun = self._begun, []
        call_all(self._timer, begun)
