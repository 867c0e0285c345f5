"""Arrivals: lets readers in this process sleep until the next commit to the database."""

from __future__ import annotations

import threading


class Arrivals:
    """A counter of commits, with a wait for the next one. Thread-safe."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._count = 0

    @property
    def count(self) -> int:
        return self._count

    def notify(self) -> None:
        """Count a commit and wake the waiting readers."""
        with self._condition:
            self._count += 1
            self._condition.notify_all()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return once the count is not `seen`, or after timeout_s."""
        with self._condition:
            if self._count == seen and timeout_s > 0:
                self._condition.wait(timeout_s)
