"""Writes: sends statements to Cassandra within a bound of bytes, and again while connections have no capacity for them.

The driver refuses a statement at once while a socket takes no more bytes. Nothing was sent then, so the statement is
sent again, in order and one at a time, until the write's timeout.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from cassandra.cluster import Session
from cassandra.query import BoundStatement

from tsdb.history import statement_metrics as metrics
from tsdb.history.cassandra.errors import is_busy, to_error
from tsdb.history.interface import OnDone
from tsdb.history.settings import HistorySettings
from tsdb.history.writes import ROW_BYTES, reserve, write_budget
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread

# Each refusal uses up one of the connection's 32,768 request numbers, until the connection is replaced.
BUSY_PAUSE_S = 0.01

log = get_logger(__name__)


@dataclass(slots=True, eq=False)
class Write:
    """One statement in flight. size: bytes of its chunk."""

    kind: str
    session: Session
    statement: BoundStatement
    on_done: OnDone
    size: int = 0
    started: float = field(default_factory=time.monotonic)
    retried: bool = False

    @property
    def weight(self) -> int:
        """Bytes counted against the bound while it waits."""
        return self.size + ROW_BYTES


class CassandraWrites:
    """Thread-safe. Answers come on the driver's thread, or on the thread `history-busy` for a write sent again."""

    def __init__(self, settings: HistorySettings) -> None:
        self._settings = settings
        self._inflight = write_budget(settings.inflight_bytes_max)
        self._changed = threading.Condition()  # Guards the fields below.
        self._busy: deque[Write] = deque()
        self._refused_again = False
        self._closing = False
        self._thread: threading.Thread | None = None

    def put(self, write: Write) -> None:
        """Send a write. Raises Overloaded (inflight_full) and Unavailable (store_closed)."""
        reserve(self._inflight, write.weight, self._settings.write_timeout_s)
        metrics.statements_total.labels(write.kind).inc()
        with self._changed:
            queued = bool(self._busy)
            if queued:
                self._busy.append(write)
        if not queued:
            self._send(write)

    def close(self) -> None:
        """Wait for the writes in flight. A second call does nothing."""
        self._inflight.close()
        if not self._inflight.wait_idle(self._settings.write_timeout_s):
            log.warning("history closed with writes unanswered", bytes=self._inflight.bytes)
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _send(self, write: Write) -> None:
        try:
            future = write.session.execute_async(write.statement)
        except Exception as error:
            # The driver's refusals come through the future; an exception here means that the session is closing.
            self._answer(write, to_error(error, f"writing {write.kind}"))
            return
        future.add_callbacks(
            callback=lambda _: self._answer(write, None), errback=lambda error: self._refused(write, error)
        )

    def _refused(self, write: Write, error: BaseException) -> None:
        late = time.monotonic() - write.started >= self._settings.write_timeout_s
        if is_busy(error) and not late:
            metrics.busy_retries_total.inc()
            self._put_back(write)
        else:
            self._answer(write, to_error(error, f"writing {write.kind}"))

    def _answer(self, write: Write, error: TsdbError | None) -> None:
        metrics.write_seconds.observe(time.monotonic() - write.started)
        if error is not None:
            metrics.count_failure(error)
        elif write.size:
            metrics.written_bytes_total.inc(write.size)
        try:
            write.on_done(error)
        finally:
            self._inflight.give_back(write.weight)

    def _put_back(self, write: Write) -> None:
        with self._changed:
            self._refused_again = True
            if write.retried:
                self._busy.appendleft(write)
            else:
                self._busy.append(write)
            if self._thread is None:
                self._thread = new_thread(self._run, "history-busy")
                self._thread.start()
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._busy or self._closing)
                if not self._busy:
                    return
            time.sleep(BUSY_PAUSE_S)
            self._drain()

    def _drain(self) -> None:
        """Send the waiting writes until one is refused again."""
        while True:
            with self._changed:
                if not self._busy:
                    return
                write = self._busy.popleft()
                write.retried = True
                self._refused_again = False
            self._send(write)
            with self._changed:
                if self._refused_again:
                    return
