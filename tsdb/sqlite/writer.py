"""Group writer: the only thread that writes one database. Waiting writes are committed together, with one disk sync.

Writes are answered after their commit. Other work on the database (`run`, maintenance) happens on the same thread,
between groups of writes.
"""

from __future__ import annotations

import sqlite3
import threading
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.disk import GrowingFile
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread, report_failure

GROUP_WRITES_MAX = 10_000
GROUP_BYTES_MAX = 16 * 1024 * 1024
TRIAL_EVERY_S = 1.0  # Time between trial writes while the disk is full.

log = get_logger(__name__)

Job = Callable[[sqlite3.Connection], None]


class QueuedWrite(Protocol):
    """A write that waits for its group."""

    @property
    def weight(self) -> int:
        """Bytes counted against the bound of a group."""


Write = TypeVar("Write", bound=QueuedWrite)
Outcome = TypeVar("Outcome")


class GroupWriter(ABC, Generic[Write, Outcome]):
    """Thread-safe. The first write starts the thread.

    A subclass gives the statements and the answers of its database. Its methods run on the writer's thread; the
    exceptions are `_closed_error` and the methods that end in `_locked`, which run on the thread of the caller.
    """

    def __init__(self, thread_name: str, subject: str, path: Path) -> None:
        """subject: the database in messages, such as "the log"."""
        self._thread_name = thread_name
        self._subject = subject
        self._path = path
        self._file = GrowingFile(path)
        self._changed = threading.Condition()  # Guards the fields below.
        self._writes: deque[Write] = deque()
        self._jobs: deque[tuple[Job, Future[None]]] = deque()
        self._unanswered = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def put(self, write: Write) -> None:
        """Queue a write. Raises the thread's error, or that of a subclass for a closed queue."""
        with self._changed:
            self._ensure_thread_locked()
            self._writes.append(write)
            self._unanswered += 1
            self._changed.notify_all()

    def run(self, job: Job, timeout_s: float) -> None:
        """Run a job on the writer's thread. The job begins its own transactions. Its errors are raised here."""
        done: Future[None] = Future()
        with self._changed:
            self._ensure_thread_locked()
            self._jobs.append((job, done))
            self._changed.notify_all()
        try:
            done.result(timeout_s)
        except TimeoutError:
            raise Unavailable(f"{self._subject} did not write within {timeout_s:g} s", reason="timeout") from None

    def close(self) -> None:
        """Write the waiting writes and stop the thread. A second call does nothing."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
        if self._thread is not None:
            self._thread.join()

    # A subclass implements these.

    @abstractmethod
    def _connect(self) -> sqlite3.Connection:
        """Open the writer's connection. An error ends the thread and is raised by the next write."""

    @abstractmethod
    def _store(self, connection: sqlite3.Connection, group: Sequence[Write]) -> Sequence[Outcome | TsdbError]:
        """Commit the group in one transaction; the outcome of each write. Raises TsdbError: nothing was stored."""

    @abstractmethod
    def _answer(self, write: Write, outcome: Outcome | TsdbError) -> None:
        """Count the outcome and call the write's callback."""

    @abstractmethod
    def _closed_error(self) -> TsdbError:
        """The error for a write after `close`."""

    # A subclass may override these.

    def _before_start_locked(self) -> None:
        """Called before the thread starts. An exception keeps it from starting and is raised by the write."""

    def _idle_s(self) -> float | None:
        """The longest wait for work, in seconds; None: no limit."""
        return None

    def _rest(self) -> None:
        """Called before the wait for work: what comes meanwhile is written together. No rest without an override."""

    def _try_to_grow(self, connection: sqlite3.Connection) -> None:
        """Called while the disk is full and no write waits, about every TRIAL_EVERY_S if `_idle_s` says so."""

    def _maintain(self, connection: sqlite3.Connection) -> None:
        """Called after each group, after jobs, and after a wait of `_idle_s`."""

    def _on_end(self) -> None:
        """Called when the thread ends."""

    # The thread.

    def _ensure_thread_locked(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closing:
            raise self._closed_error()
        if self._thread is None:
            self._before_start_locked()
            self._thread = new_thread(self._run, self._thread_name)
            self._thread.start()

    def _run(self) -> None:
        try:
            with closing(self._connect()) as connection:
                while self._step(connection):
                    pass
        except BaseException as error:
            self._fail(error)
            report_failure(error, self._thread_name)
        finally:
            self._file.grew()
            self._on_end()

    def _step(self, connection: sqlite3.Connection) -> bool:
        """Wait for work and do it. Returns False when the writer is closed and has no work left."""
        self._rest()
        with self._changed:
            self._changed.wait_for(lambda: bool(self._writes or self._jobs or self._closing), self._idle_s())
            group = self._take_locked()
            jobs = list(self._jobs)
            self._jobs.clear()
            ending = self._closing and not group and not jobs
        try:
            if group:
                self._write(connection, group)
            elif self._file.is_full and not ending:
                self._try_to_grow(connection)
        except BaseException as error:
            # These jobs are no longer in a queue, so `_fail` would not find them.
            for _, done in jobs:
                done.set_exception(error)
            raise
        for job, done in jobs:
            self._run_job(connection, job, done)
        if not ending:
            self._maintain(connection)
        return not ending

    def _take_locked(self) -> list[Write]:
        group: list[Write] = []
        size = 0
        while self._writes and len(group) < GROUP_WRITES_MAX and (not group or size < GROUP_BYTES_MAX):
            write = self._writes.popleft()
            size += write.weight
            group.append(write)
        return group

    def _write(self, connection: sqlite3.Connection, group: list[Write]) -> None:
        outcomes: Sequence[Outcome | TsdbError]
        try:
            outcomes = self._store(connection, group)
        except TsdbError as error:
            log.warning(
                "writes refused",
                thread=self._thread_name,
                writes=len(group),
                reason=error.reason,
                error=error.message,
            )
            self._file.refused(error)
            outcomes = [error] * len(group)
        except BaseException as error:
            # A bug ends the thread, but not without an answer to writes that no queue has any more.
            self._answer_all(group, [self._failed_answer(error)] * len(group))
            raise
        else:
            self._file.grew()
        self._answer_all(group, outcomes)

    def _answer_all(self, group: Sequence[Write], outcomes: Sequence[Outcome | TsdbError]) -> None:
        for write, outcome in zip(group, outcomes, strict=True):
            try:
                self._answer(write, outcome)
            except BaseException as error:
                # The error is a bug in a callback. The other answers must still be delivered, and the next write raises
                # the error.
                self._error = error
                report_failure(error, self._thread_name)
        with self._changed:
            self._unanswered -= len(group)
            self._changed.notify_all()

    def _run_job(self, connection: sqlite3.Connection, job: Job, done: Future[None]) -> None:
        try:
            job(connection)
        except BaseException as error:
            if isinstance(error, TsdbError):
                self._file.refused(error)
            done.set_exception(error)
        else:
            done.set_result(None)

    def _fail(self, error: BaseException) -> None:
        """The thread ends with an error: answer every waiting write and job."""
        with self._changed:
            self._error = error
            group, jobs = list(self._writes), list(self._jobs)
            self._writes.clear()
            self._jobs.clear()
        self._answer_all(group, [self._failed_answer(error)] * len(group))
        for _, done in jobs:
            done.set_exception(error)

    def _failed_answer(self, error: BaseException) -> TsdbError:
        return error if isinstance(error, TsdbError) else TsdbError(f"{self._subject}'s writer failed: {error}")
