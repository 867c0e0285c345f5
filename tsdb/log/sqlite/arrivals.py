"""Arrivals: lets readers in this process sleep until the next commit with records of their topics.

A commit of this process wakes the readers of its topics at once. One thread asks the database for commits of other
processes, every OTHER_PROCESS_S while a reader waits, and wakes all readers after one.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Collection
from contextlib import closing

from tsdb.model.errors import TsdbError
from tsdb.ops.threads import new_thread

OTHER_PROCESS_S = 0.05  # Time between two checks; a check takes 20 us.
FAILED_S = 1.0  # Pause after a check that failed. The readers are woken, because their reads find the reason.


class Arrivals:
    """The readers of one log. Thread-safe. connect: a connection for the thread, which starts with the first wait."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()  # Guards _waits, their counts and _thread; an innermost lock.
        self._waits: set[ArrivalWait] = set()
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()

    def wait_of_reader(self) -> ArrivalWait:
        """The wait of a new reader, until `remove`."""
        made = ArrivalWait(self._watch_others)
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
            for wait in self._waits:
                if topics is None or not wait.topics.isdisjoint(topics):
                    wait.arrived()

    def close(self) -> None:
        """End the thread. Readers that still wait get no more of other processes."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    def _watch_others(self) -> None:
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = new_thread(self._run, "log-arrivals")
                self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with closing(self._connect()) as connection:
                    self._ask(connection)
            except (TsdbError, sqlite3.Error):
                self.notify()
                self._closing.wait(FAILED_S)

    def _ask(self, connection: sqlite3.Connection) -> None:
        version = None
        while True:
            found = connection.execute("PRAGMA data_version").fetchone()
            if found != version:
                version = found
                self.notify()
            if self._closing.wait(OTHER_PROCESS_S):
                return


class ArrivalWait:
    """Waits of one reader. topics: full names of the topics that it reads; the reader sets them. count: commits so
    far."""

    def __init__(self, on_first: Callable[[], None] = lambda: None) -> None:
        """on_first: called with the first wait."""
        self.topics: frozenset[str] = frozenset()
        self.count = 0
        self._event = threading.Event()
        self._on_first: Callable[[], None] | None = on_first
        self._woken = False

    def arrived(self) -> None:
        """Count a commit and wake the reader. Calls do not overlap."""
        self.count += 1
        self._event.set()

    def wake(self) -> None:
        """End the reader's poll. Any thread."""
        self._woken = True
        self._event.set()

    def take_woken(self) -> bool:
        """Whether `wake` was called since the last time. For the reader's thread."""
        woken, self._woken = self._woken, False
        return woken

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return once the count is not `seen`, after `wake`, or after timeout_s. For the reader's thread."""
        if self._on_first is not None:
            self._on_first()
            self._on_first = None
        self._event.clear()
        if self.count == seen and not self._woken and timeout_s > 0:
            self._event.wait(timeout_s)
