"""Writer: the only thread that writes an embedded history. Waiting writes are committed together, with one sync."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from tsdb.history.inflight import ROW_BYTES, InflightBytes
from tsdb.history.interface import OnDone
from tsdb.history.settings import HistorySettings
from tsdb.history.sqlite.database import connect, transaction
from tsdb.history.statement_metrics import CHUNK, count_failure, statements_total, write_seconds, written_bytes_total
from tsdb.model.errors import TsdbError, Unavailable
from tsdb.ops.disk import GrowingFile
from tsdb.ops.logs import get_logger

GROUP_WRITES_MAX = 10_000
GROUP_BYTES_MAX = 16 * 1024 * 1024

log = get_logger(__name__)

Statement = tuple[str, tuple[object, ...]]


@dataclass(slots=True)
class Write:
    """Statements of one kind with one answer. size: bytes of the chunks in them."""

    kind: str
    statements: Sequence[Statement]
    on_done: OnDone
    size: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def weight(self) -> int:
        """Bytes counted against the bound while it waits."""
        return self.size + ROW_BYTES * len(self.statements)


class SqliteWriter:
    """Thread-safe. Its thread starts with the first write."""

    def __init__(self, path: Path, settings: HistorySettings) -> None:
        self._path = path
        self._file = GrowingFile(path)
        self._settings = settings
        self._inflight = InflightBytes(settings.inflight_bytes_max)
        self._work = threading.Condition()  # Guards the fields below.
        self._writes: deque[Write] = deque()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def put(self, write: Write) -> None:
        """Queue a write. Raises Overloaded (inflight_full), Unavailable (store_closed), or the thread's error."""
        self._inflight.take(write.weight, self._settings.write_timeout_s)
        try:
            with self._work:
                self._start_locked()
                self._writes.append(write)
                self._work.notify()
        except BaseException:
            self._inflight.give_back(write.weight)
            raise

    def close(self) -> None:
        """Write the waiting rows and stop the thread. A second call does nothing."""
        left = self._inflight.close(self._settings.write_timeout_s)
        if left:
            log.warning("history closed with writes unanswered", writes=left)
        with self._work:
            self._closing = True
            self._work.notify()
        if self._thread is not None:
            self._thread.join()

    def _start_locked(self) -> None:
        if self._error is not None:
            raise self._error
        if self._closing:
            raise count_failure(Unavailable("the history connection is closed", reason="store_closed"))
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="history-writer", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        try:
            with closing(connect(self._path)) as connection:
                while group := self._take():
                    self._answer(group, self._store(connection, group))
        except BaseException as error:
            log.error("history's writer failed", error=str(error), exc_info=True)
            self._fail(error)
        finally:
            self._file.grew()

    def _take(self) -> list[Write]:
        """The next group of writes; empty when the writer is closed."""
        with self._work:
            self._work.wait_for(lambda: self._writes or self._closing)
            group: list[Write] = []
            size = 0
            while self._writes and len(group) < GROUP_WRITES_MAX and (not group or size < GROUP_BYTES_MAX):
                write = self._writes.popleft()
                size += write.weight
                group.append(write)
            return group

    def _store(self, connection: sqlite3.Connection, group: list[Write]) -> TsdbError | None:
        try:
            with transaction(connection, "writing"):
                for write in group:
                    for sql, values in write.statements:
                        connection.execute(sql, values)
                    statements_total.labels(write.kind).inc(len(write.statements))
        except TsdbError as error:
            log.warning("writes to history refused", writes=len(group), reason=error.reason, error=error.message)
            self._file.refused(error)
            return error
        self._file.grew()
        return None

    def _answer(self, group: list[Write], error: TsdbError | None) -> None:
        now = time.monotonic()
        for write in group:
            if error is not None:
                count_failure(error)
            elif write.kind == CHUNK:
                written_bytes_total.inc(write.size)
            write_seconds.observe(now - write.started)
            try:
                write.on_done(error)
            except BaseException as bug:
                # A bug in a callback. The other answers must still be delivered; the next write raises the error.
                log.error("a callback of a write failed", error=str(bug), exc_info=True)
                self._error = bug
            finally:
                self._inflight.give_back(write.weight)

    def _fail(self, error: BaseException) -> None:
        """The thread ends with an error: answer every waiting write."""
        with self._work:
            self._error = error
            group = list(self._writes)
            self._writes.clear()
        self._answer(group, error if isinstance(error, TsdbError) else TsdbError(f"history's writer failed: {error}"))
