"""Writer of an embedded log: appends, commits of groups and maintenance, on one thread.

Only one of the processes that open an embedded log may hold the writer lock and write.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from tsdb.log.append_answers import append_failures_total, appends_total
from tsdb.log.interface import Appended
from tsdb.log.settings import LogSettings
from tsdb.log.sqlite.appends import Answer, Append, FaultPlan, store_group
from tsdb.log.sqlite.arrivals import Arrivals
from tsdb.log.sqlite.database import ERRORS, connect
from tsdb.log.sqlite.maintenance import maintain
from tsdb.log.sqlite.values import LaneCoders
from tsdb.model.clock import Clock
from tsdb.model.errors import ConfigMismatch, Overloaded, TsdbError, Unavailable
from tsdb.ops.byte_budget import ByteBudget
from tsdb.ops.file_lock import FileLock
from tsdb.ops.logs import get_logger
from tsdb.sqlite.database import transaction
from tsdb.sqlite.writer import TRIAL_EVERY_S, GroupWriter, Job

TRIAL_BYTES = 256 * 1024

log = get_logger(__name__)


class LogWriter(GroupWriter[Append, Appended]):
    """`put` raises Overloaded (queue_full) and Unavailable (log_closed, log_locked).

    The first write takes the writer lock; a guest takes no lock.
    """

    def __init__(self, path: Path, settings: LogSettings, clock: Clock, faults: FaultPlan, arrivals: Arrivals) -> None:
        super().__init__("log-writer", "the log", path)
        self._settings = settings
        self._clock = clock
        self._faults = faults
        self._arrivals = arrivals
        self._lock = WriterLock(path)
        self._maintain_at = 0.0
        # Bytes of appends that have no answer yet.
        self._queued = ByteBudget(settings.queue_bytes_max, admits_one=True)
        self._coders = LaneCoders(own_dictionaries=not settings.embedded_guest)
        self._version: int | None = None  # Changes with each commit of another connection.

    def claim(self) -> None:
        """Take the writer lock before the first write. Raises ConfigMismatch (log_in_use)."""
        self._lock.claim()

    def run(self, job: Job, timeout_s: float) -> None:
        """See GroupWriter. The job changes no records."""

        def counted(connection: sqlite3.Connection) -> None:
            self._arrivals.begun += 1
            try:
                job(connection)
            finally:
                self._arrivals.committed += 1

        super().run(counted, timeout_s)

    def maintain(self, timeout_s: float) -> None:
        """Run retention and compaction now."""
        super().run(self._maintained, timeout_s)

    def look_for_others(self, timeout_s: float) -> None:
        """Let all readers read the database if another process has written since the last look. Only a connection
        that made the other commits can tell."""
        super().run(self._look_for_others, timeout_s)

    def put(self, write: Append) -> None:
        """See GroupWriter. Raises Overloaded (queue_full)."""
        if not self._queued.take(write.weight):
            raise _count(
                Overloaded(
                    f"topic {write.topic}, partition {write.partition}: {self._queued.bytes} bytes wait for an "
                    f"answer; the limit is {self._queued.bytes_max}",
                    reason="queue_full",
                    retry_after_s=1.0,
                )
            )
        try:
            super().put(write)
        except BaseException:
            self._queued.give_back(write.weight)
            raise

    def flush(self, timeout_s: float) -> None:
        """Wait until all appends so far are answered. Raises Unavailable (timeout)."""
        with self._changed:
            answered = self._changed.wait_for(lambda: self._unanswered == 0, timeout_s)
            if self._error is not None:
                raise self._error
            if not answered:
                raise Unavailable(f"{self._unanswered} records were not answered in {timeout_s:g} s", reason="timeout")

    def close(self) -> None:
        """See GroupWriter; releases the writer lock, which may be held without a thread."""
        super().close()
        self._lock.release()

    def _connect(self) -> sqlite3.Connection:
        self._maintain_at = self._clock.monotonic() + self._settings.embedded_maintain_s
        connection = connect(self._path)
        try:
            self._limit(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _limit(self, connection: sqlite3.Connection) -> None:
        if self._settings.embedded_bytes_max is not None:
            page_bytes = connection.execute("PRAGMA page_size").fetchone()[0]
            pages = max(1, self._settings.embedded_bytes_max // page_bytes)
            connection.execute(f"PRAGMA max_page_count = {pages}")

    def _store(self, connection: sqlite3.Connection, group: Sequence[Append]) -> list[Answer]:
        delay_s = self._faults.delay_s()
        if delay_s:
            self._clock.sleep(delay_s)
        now_ms = self._faults.broker_ms(self._clock.now_ms())
        self._arrivals.begun += 1
        try:
            with transaction(connection, ERRORS, "append", write=True):
                answers, stored = store_group(connection, group, now_ms, self._faults, self._coders)
        except BaseException:
            self._coders.forget()
            raise
        finally:
            self._arrivals.committed += 1
        self._arrivals.deliver(stored)
        return answers

    def _answer(self, write: Append, outcome: Answer) -> None:
        if isinstance(outcome, TsdbError):
            _count(outcome)
        else:
            appends_total.inc()
        self._queued.give_back(write.weight)
        write.on_done(outcome)

    def _closed_error(self) -> TsdbError:
        return _count(Unavailable("the log is closed", reason="log_closed"))

    def _before_start_locked(self) -> None:
        # The lock keeps a role from running twice. It is not needed for correct offsets: each group of appends is one
        # transaction that reads the current lanes.
        if self._settings.embedded_guest:
            return
        try:
            self._lock.take()
        except Unavailable as error:
            raise _count(error) from None

    def _idle_s(self) -> float:
        maintain_s = self._settings.embedded_maintain_s
        return min(TRIAL_EVERY_S, maintain_s) if self._file.is_full else maintain_s

    def _try_to_grow(self, connection: sqlite3.Connection) -> None:
        """Write a trial row and delete it. A process that is not ready gets no appends, so nothing else would show that
        the disk has free space again."""
        try:
            with transaction(connection, ERRORS, "trial", write=True):
                connection.execute("INSERT INTO commits VALUES ('', '', 0, 0, ?)", ("x" * TRIAL_BYTES,))
                connection.execute("DELETE FROM commits WHERE group_id = ''")
        except TsdbError as error:
            self._file.refused(error)
        else:
            self._file.grew()
            log.info("the log can grow again", path=str(self._path))

    def _maintain(self, connection: sqlite3.Connection) -> None:
        if self._settings.embedded_guest or self._clock.monotonic() < self._maintain_at:
            return
        self._maintain_at = self._clock.monotonic() + self._settings.embedded_maintain_s
        try:
            self._maintained(connection)
        except TsdbError as error:
            log.warning("maintenance failed", reason=error.reason, error=error.message)

    def _maintained(self, connection: sqlite3.Connection) -> None:
        maintain(connection, self._clock.now_ms())
        self._arrivals.reread()

    def _look_for_others(self, connection: sqlite3.Connection) -> None:
        version = connection.execute("PRAGMA data_version").fetchone()[0]
        if version != self._version:
            self._version = version
            self._arrivals.reread()

    def _on_end(self) -> None:
        self._lock.release()


def _count(error: TsdbError) -> TsdbError:
    append_failures_total.labels(error.reason).inc()
    return error


class WriterLock:
    """A lock file beside the database, taken at the start or at the first write, and freed by `release`."""

    def __init__(self, database: Path) -> None:
        self._lock = FileLock(database.with_name(database.name + ".lock"))

    def take(self) -> None:
        """Take the lock; a second call does nothing. Raises Unavailable (log_locked) with the holder's process."""
        holder = self._lock.take()
        if holder:
            raise Unavailable(self._text(holder), reason="log_locked")

    def claim(self) -> None:
        """See `take`; for a process that cannot run without the lock. Raises ConfigMismatch (log_in_use)."""
        holder = self._lock.take()
        if holder:
            raise ConfigMismatch(f"{self._text(holder)}; end it first, or give another --log", reason="log_in_use")

    def release(self) -> None:
        """Release the lock. A second call does nothing."""
        self._lock.release()

    def _text(self, holder: str) -> str:
        return f"another process writes to this log: {self._lock.path} is held by process {holder}"
