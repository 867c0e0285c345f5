"""Writer: the only thread that writes an embedded log. Waiting appends are committed together, with one disk sync.

Appends are answered after their commit. Other writes (commits of groups, maintenance) run on the same thread, between
groups of appends.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from pathlib import Path

from tsdb.log.append_metrics import append_failures_total, appends_total
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite.appends import Answer, Append, store_group
from tsdb.log.sqlite.arrivals import Arrivals
from tsdb.log.sqlite.database import connect, transaction
from tsdb.log.sqlite.faults import FaultPlan
from tsdb.log.sqlite.maintenance import maintain
from tsdb.log.sqlite.writer_lock import WriterLock
from tsdb.model.clock import Clock
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.disk import GrowingFile
from tsdb.ops.logs import get_logger

GROUP_RECORDS_MAX = 10_000
GROUP_BYTES_MAX = 16 * 1024 * 1024
TRIAL_EVERY_S = 1.0  # While the disk is full.
TRIAL_BYTES = 256 * 1024

log = get_logger(__name__)

Job = Callable[[sqlite3.Connection], None]


class SqliteWriter:
    """Thread-safe. The first write starts the thread and takes the writer lock; a guest takes no lock."""

    def __init__(self, path: Path, settings: LogSettings, clock: Clock, faults: FaultPlan, arrivals: Arrivals) -> None:
        self._path = path
        self._file = GrowingFile(path)
        self._settings = settings
        self._clock = clock
        self._faults = faults
        self._arrivals = arrivals
        self._lock = WriterLock(path)
        self._work = threading.Condition()  # Guards the fields below.
        self._appends: deque[Append] = deque()
        self._jobs: deque[tuple[Job, Future[None]]] = deque()
        self._queued_bytes = 0
        self._unanswered = 0
        self._closing = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None
        self._maintain_at = 0.0

    def claim(self) -> None:
        """Take the writer lock before the first write. Raises ConfigMismatch (log_in_use)."""
        self._lock.claim()

    def append(self, append: Append) -> None:
        """Queue one record. Raises Overloaded (queue_full), Unavailable (log_closed, log_locked)."""
        with self._work:
            self._start_locked()
            if self._queued_bytes + append.size > self._settings.queue_bytes_max and self._unanswered:
                raise _count(
                    Overloaded(
                        f"topic {append.topic}, partition {append.partition}: {self._queued_bytes} bytes wait for an "
                        f"answer; the limit is {self._settings.queue_bytes_max}",
                        reason="queue_full",
                        retry_after_s=1.0,
                    )
                )
            self._appends.append(append)
            self._queued_bytes += append.size
            self._unanswered += 1
            self._work.notify_all()

    def run(self, job: Job, timeout_s: float) -> None:
        """Run a write on the writer's thread. The job begins its own transactions; its errors are raised here."""
        done: Future[None] = Future()
        with self._work:
            self._start_locked()
            self._jobs.append((job, done))
            self._work.notify_all()
        try:
            done.result(timeout_s)
        except TimeoutError:
            raise Unavailable(f"the log did not write within {timeout_s:g} s", reason="timeout") from None

    def flush(self, timeout_s: float) -> None:
        """Wait until all appends so far are answered. Raises Unavailable (timeout)."""
        with self._work:
            answered = self._work.wait_for(lambda: self._unanswered == 0, timeout_s)
            if self._error is not None:
                raise self._error
            if not answered:
                raise Unavailable(f"{self._unanswered} records were not answered in {timeout_s:g} s", reason="timeout")

    def close(self) -> None:
        """Write the waiting appends and stop the thread. A second call does nothing."""
        with self._work:
            self._closing = True
            self._work.notify_all()
        if self._thread is not None:
            self._thread.join()
        self._lock.release()

    def _start_locked(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closing:
            raise _count(Unavailable("the log is closed", reason="log_closed"))
        if self._thread is None:
            try:
                # The lock keeps a role from running twice. It is not needed for correct offsets: each group of appends
                # is one transaction that reads the current lanes.
                if not self._settings.embedded_guest:
                    self._lock.take()
            except Unavailable as error:
                raise _count(error) from None
            self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            with closing(connect(self._path)) as connection:
                self._limit(connection)
                self._maintain_at = self._clock.monotonic() + self._settings.embedded_maintain_s
                while self._step(connection):
                    pass
        except BaseException as error:
            log.error("the log's writer failed", error=str(error), exc_info=True)
            self._fail(error)
        finally:
            self._file.grew()
            self._lock.release()

    def _limit(self, connection: sqlite3.Connection) -> None:
        if self._settings.embedded_bytes_max is not None:
            page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
            pages = max(1, self._settings.embedded_bytes_max // page_bytes)
            connection.execute(f"PRAGMA max_page_count = {pages}")

    def _fail(self, error: BaseException) -> None:
        """The thread ends with an error: answer every waiting append and job."""
        with self._work:
            self._error = error
            group, jobs = list(self._appends), list(self._jobs)
            self._appends.clear()
            self._jobs.clear()
        answer = error if isinstance(error, TsdbError) else TsdbError(f"the log's writer failed: {error}")
        self._answer(group, [answer] * len(group))
        for _, done in jobs:
            done.set_exception(error)

    def _step(self, connection: sqlite3.Connection) -> bool:
        """Wait for work and do it. Returns False when the writer is closed and has no work left."""
        with self._work:
            idle_s = self._settings.embedded_maintain_s
            self._work.wait_for(
                lambda: bool(self._appends or self._jobs or self._closing),
                min(TRIAL_EVERY_S, idle_s) if self._file.is_full else idle_s,
            )
            group = self._take_locked()
            jobs = list(self._jobs)
            self._jobs.clear()
            ending = self._closing and not group and not jobs
        if group:
            self._store(connection, group)
        elif self._file.is_full and not ending:
            self._try_to_grow(connection)
        for job, done in jobs:
            self._run_job(connection, job, done)
        if not ending and not self._settings.embedded_guest and self._clock.monotonic() >= self._maintain_at:
            self._maintain(connection)
        return not ending

    def _take_locked(self) -> list[Append]:
        group: list[Append] = []
        size = 0
        while self._appends and len(group) < GROUP_RECORDS_MAX and (not group or size < GROUP_BYTES_MAX):
            append = self._appends.popleft()
            size += append.size
            group.append(append)
        return group

    def _store(self, connection: sqlite3.Connection, group: list[Append]) -> None:
        delay_s = self._faults.delay_s()
        if delay_s:
            self._clock.sleep(delay_s)
        now_ms = self._faults.broker_ms(self._clock.now_ms())
        answers: list[Answer]
        try:
            with transaction(connection, "append", write=True):
                answers = store_group(connection, group, now_ms, self._faults)
        except TsdbError as error:
            log.warning("appends refused", records=len(group), reason=error.reason, error=error.message)
            self._file.refused(error)
            answers = [error] * len(group)
        else:
            self._file.grew()
            self._arrivals.notify()
        self._answer(group, answers)

    def _try_to_grow(self, connection: sqlite3.Connection) -> None:
        """Write a trial row and delete it. A process that is not ready gets no appends, so nothing else would show
        that the disk has room again."""
        try:
            with transaction(connection, "trial", write=True):
                connection.execute("INSERT INTO commits VALUES ('', '', 0, 0, ?)", ("x" * TRIAL_BYTES,))
                connection.execute("DELETE FROM commits WHERE group_id = ''")
        except TsdbError as error:
            self._file.refused(error)
        else:
            self._file.grew()
            log.info("the log can grow again", path=str(self._path))

    def _answer(self, group: list[Append], answers: list[Answer]) -> None:
        for append, answer in zip(group, answers, strict=True):
            if isinstance(answer, TsdbError):
                _count(answer)
            else:
                appends_total.inc()
            try:
                append.on_done(answer)
            except BaseException as error:
                # A bug in a callback. The other answers must still be delivered; the next append raises the error.
                log.error("a callback of an append failed", error=str(error), exc_info=True)
                self._error = error
        with self._work:
            self._queued_bytes -= sum(append.size for append in group)
            self._unanswered -= len(group)
            self._work.notify_all()

    def _run_job(self, connection: sqlite3.Connection, job: Job, done: Future[None]) -> None:
        try:
            job(connection)
        except BaseException as error:
            if isinstance(error, TsdbError):
                self._file.refused(error)
            done.set_exception(error)
        else:
            self._arrivals.notify()
            done.set_result(None)

    def _maintain(self, connection: sqlite3.Connection) -> None:
        self._maintain_at = self._clock.monotonic() + self._settings.embedded_maintain_s
        try:
            maintain(connection, self._clock.now_ms())
        except TsdbError as error:
            log.warning("maintenance failed", reason=error.reason, error=error.message)
        else:
            self._arrivals.notify()


def _count(error: TsdbError) -> TsdbError:
    append_failures_total.labels(error.reason).inc()
    return error
