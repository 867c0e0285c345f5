"""Arrivals: lets readers in this process sleep until the next commit with records of their topics."""

from __future__ import annotations

import threading
from collections.abc import Collection


class Arrivals:
    """The readers of one log. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # Guards _waits.
        self._waits: set[ArrivalWait] = set()

    def wait_of_reader(self) -> ArrivalWait:
        """The wait of a new reader, until `remove`."""
        made = ArrivalWait()
        with self._lock:
            self._waits.add(made)
        return made

    def remove(self, wait: ArrivalWait) -> None:
        """The reader is closed."""
        with self._lock:
            self._waits.discard(wait)

    def notify(self, topics: Collection[str] | None = None) -> None:
        """A commit has changed these topics (None: any of them): wake their readers."""
        with self._lock:
            waits = list(self._waits)
        for wait in waits:
            if topics is None or not wait.topics.isdisjoint(topics):
                wait.arrived()


class ArrivalWait:
    """Waits of one reader. topics: full names of the topics that it reads; the reader sets them. count: commits so
    far."""

    def __init__(self) -> None:
        self.topics: frozenset[str] = frozenset()
        self.count = 0
        self._event = threading.Event()

    def arrived(self) -> None:
        """Count a commit and wake the reader. Calls do not overlap."""
        self.count += 1
        self._event.set()

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return once the count differs from `seen`, or after timeout_s. For the reader's thread."""
        self._event.clear()
        if self.count == seen and timeout_s > 0:
            self._event.wait(timeout_s)
