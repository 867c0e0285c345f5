"""Open requests: whether requests meet, so that it pays to wait for one another."""

from __future__ import annotations

import threading
from collections.abc import Callable

# Requests meet for this long after two were open at once: senders that are answered together send again within it.
MEET_S = 0.05


class OpenRequests:
    """Thread-safe. monotonic: seconds on a clock that never steps."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._lock = threading.Lock()  # Guards both below; _meet_until is read without it.
        self._open = 0
        self._meet_until = float("-inf")

    def opened(self) -> None:
        """A request has come."""
        with self._lock:
            self._open += 1
            if self._open > 1:
                self._meet_until = self._monotonic() + MEET_S

    def closed(self) -> None:
        """A request is answered."""
        with self._lock:
            self._open -= 1

    def meet(self) -> bool:
        """Whether two were open at once within MEET_S."""
        return self._monotonic() < self._meet_until
