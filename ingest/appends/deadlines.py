"""Deadlines of the requests that wait for the log: each is answered when its time has passed."""

from __future__ import annotations

import threading
from typing import Protocol

from ingest.appends.timer import Timer, call_all


class Expirable(Protocol):
    """A request with a deadline."""

    def expire(self) -> None:
        """The deadline has passed. Has no effect on an answered request."""


class Deadlines:
    """Thread-safe. One call of the timer is outstanding at a time, for the earliest deadline."""

    def __init__(self, timer: Timer) -> None:
        self._timer = timer
        self._lock = threading.Lock()  # Guards all below.
        self._open: dict[Expirable, float] = {}
        self._wakes_at = float("inf")

    def add(self, request: Expirable, remaining_s: float) -> None:
        """Expire the request after remaining_s, unless it is removed first."""
        at = self._timer.now() + remaining_s
        with self._lock:
            self._open[request] = at
            if at >= self._wakes_at:
                return
            self._wakes_at = at
        self._timer.after(remaining_s, self._sweep)

    def remove(self, request: Expirable) -> None:
        """The request is answered."""
        with self._lock:
            self._open.pop(request, None)

    def _sweep(self) -> None:
        now = self._timer.now()
        with self._lock:
            late = [request for request, at in self._open.items() if at <= now]
            for request in late:
                del self._open[request]
            at = self._wakes_at = min(self._open.values(), default=float("inf"))
        # `add` of another thread may have moved _wakes_at since, and has called the timer itself then.
        if at < float("inf"):
            self._timer.after(at - now, self._sweep)
        call_all(self._timer, [request.expire for request in late])
