"""Arrivals: hands what this process appends to its readers, so that no row is read back, and lets them sleep meanwhile.

After each commit the writer gives the stored records to the readers of their partitions. A reader that has read
everything before takes them; any other reads the database. After a commit of another process all readers read the
database. One thread looks for such commits, every OTHER_PROCESS_S while a reader waits.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from tsdb.log.interface import TopicPartition
from tsdb.model.errors import TsdbError
from tsdb.ops.threads import new_thread

OTHER_PROCESS_S = 0.05  # Time between two checks; a check takes 20 us.
FAILED_S = 1.0  # Pause after a check that failed. The readers read the database then, and find the reason.
WAITING_BYTES_MAX = 8 * 1024 * 1024  # Bytes that wait for one reader. Beyond it the reader reads the database.

Row = tuple[Any, ...]  # Row id, broker_ms, value as it was appended, key, headers as text.


@dataclass(frozen=True, slots=True)
class CommittedRows:
    """Rows of one partition that one transaction has stored. place: full name of the topic, and the partition.
    first_offset, end_offset: the end of the partition before and after the transaction."""

    place: TopicPartition
    topic_id: str
    first_offset: int
    end_offset: int
    rows: Sequence[Row]
    size: int


class Arrivals:
    """The readers of one log. Thread-safe.

    connect: a connection for the thread, which starts with the first wait. look_for_others: calls `reread` if another
    process has committed. begun, committed: the numbers of transactions of this process, which its writer counts.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], look_for_others: Callable[[], None]) -> None:
        self._connect = connect
        self._look_for_others = look_for_others
        self._lock = threading.Lock()  # Guards all below and the state of the subscriptions; an innermost lock.
        self._subscriptions: set[Subscription] = set()
        self._of_place: dict[TopicPartition, list[Subscription]] = {}
        self._thread: threading.Thread | None = None
        self._closing = threading.Event()
        self.begun = self.committed = 0

    def subscribe(self) -> Subscription:
        """The arrivals of a new reader, until `remove`."""
        made = Subscription(self, self._lock)
        with self._lock:
            self._subscriptions.add(made)
        return made

    def remove(self, subscription: Subscription) -> None:
        """The reader is closed."""
        self.assign(subscription, ())
        with self._lock:
            self._subscriptions.discard(subscription)

    def assign(self, subscription: Subscription, places: Iterable[TopicPartition]) -> None:
        """The reader reads these partitions now."""
        with self._lock:
            for place in subscription.places:
                self._of_place[place].remove(subscription)
            subscription.places = frozenset(places)
            for place in subscription.places:
                self._of_place.setdefault(place, []).append(subscription)

    def deliver(self, stored: Sequence[CommittedRows]) -> None:
        """The writer has committed these records."""
        with self._lock:
            for one in stored:
                for subscription in self._of_place.get(one.place, ()):
                    subscription.put_locked(one)

    def reread(self) -> None:
        """A commit has changed more than it delivered: all readers read the database."""
        with self._lock:
            for subscription in self._subscriptions:
                subscription.reread_locked()

    def close(self) -> None:
        """End the thread. Readers that still wait get no more of other processes."""
        self._closing.set()
        with self._lock:
            thread = self._thread
        if thread is not None:
            thread.join()

    @property
    def watches_others(self) -> bool:
        """Whether commits of other processes are noticed."""
        return self._thread is not None

    def watch_others(self) -> None:
        """Start the thread, once."""
        with self._lock:
            if self._thread is None and not self._closing.is_set():
                self._thread = new_thread(self._run, "log-arrivals")
                self._thread.start()

    def _run(self) -> None:
        while not self._closing.is_set():
            try:
                with closing(self._connect()) as connection:
                    self._watch(connection)
            except (TsdbError, sqlite3.Error):
                self.reread()
                self._closing.wait(FAILED_S)

    def _watch(self, connection: sqlite3.Connection) -> None:
        version, committed = None, 0
        while True:
            committed_before = self.committed
            found = connection.execute("PRAGMA data_version").fetchone()
            if found != version:
                # If this process began no transaction since the last check, the commit is of another process.
                if version is None or self.begun == committed:
                    self.reread()
                else:
                    self._look_for_others()
                version = found
            committed = committed_before
            if self._closing.wait(OTHER_PROCESS_S):
                return


class Subscription:
    """The arrivals of one reader. Its methods are for the reader's thread, except `wake` and those that end in
    `_locked`. count: arrivals so far. places: partitions that the reader reads, by full name."""

    def __init__(self, arrivals: Arrivals, lock: threading.Lock) -> None:
        self._arrivals = arrivals
        self._lock = lock
        self.places: frozenset[TopicPartition] = frozenset()
        self.count = 0
        self._listens = False
        self._stored: list[CommittedRows] = []
        self._bytes = 0
        self._event = threading.Event()
        self._woken = False

    def assign(self, places: Iterable[TopicPartition]) -> None:
        """Get the arrivals of these partitions from now on."""
        self._arrivals.assign(self, places)

    def listen(self) -> None:
        """Collect what is stored from now on. The reader then reads the database up to its end, or calls `stop`."""
        with self._lock:
            self._drop_locked()
            self._listens = self._arrivals.watches_others

    def stop(self) -> None:
        """Collect nothing: the reader has not read everything before."""
        with self._lock:
            self._drop_locked()

    def take(self) -> list[CommittedRows] | None:
        """Take what was stored since `listen`, in its order. None: read the database."""
        with self._lock:
            if not self._listens:
                return None
            taken, self._stored, self._bytes = self._stored, [], 0
            return taken

    def put_locked(self, stored: CommittedRows) -> None:
        """Add stored records, and wake the reader."""
        if self._listens:
            self._stored.append(stored)
            self._bytes += stored.size
            if self._bytes > WAITING_BYTES_MAX:
                self._drop_locked()
        self._arrived()

    def reread_locked(self) -> None:
        """Let the reader read the database, and wake it."""
        self._drop_locked()
        self._arrived()

    def wake(self) -> None:
        """End the reader's poll. Any thread."""
        self._woken = True
        self._event.set()

    def take_woken(self) -> bool:
        """Whether `wake` was called since the last time."""
        woken, self._woken = self._woken, False
        return woken

    def wait(self, seen: int, timeout_s: float) -> None:
        """Return once the count is not `seen`, after `wake`, or after timeout_s."""
        if not self._arrivals.watches_others:
            self._arrivals.watch_others()
        self._event.clear()
        if self.count == seen and not self._woken and timeout_s > 0:
            self._event.wait(timeout_s)

    def _arrived(self) -> None:
        self.count += 1
        self._event.set()

    def _drop_locked(self) -> None:
        self._listens = False
        self._stored, self._bytes = [], 0
