"""WorkPool: threads for the blocking work of requests, with a bounded queue before them."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tsdb.api.prometheus.errors import QUERY_QUEUE
from tsdb.model.errors import Overloaded, TsdbError, Unavailable
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter, gauge
from tsdb.ops.queue_threads import QueueThreads

DRAINING = "draining"
RETRY_AFTER_S = 1.0

_waiting = gauge("tsdb_query_waiting", "PromQL queries and lookups of labels that wait for a thread.")
_refused = counter(
    "tsdb_query_refused_total",
    "PromQL queries and lookups that were not begun: the queue was full, or the process was ending.",
    "reason",
    (QUERY_QUEUE, DRAINING),
)

log = get_logger(__name__)


class WorkPool:
    """A component. waiting_max: pieces of work that wait at once; None: their number is bounded by the caller.
    niceness: of the threads (tsdb.ops.queue_threads). Work must not raise."""

    def __init__(self, name: str, threads: int, waiting_max: int | None = None, *, niceness: int = 0) -> None:
        self._waiting_max = waiting_max
        self._threads: QueueThreads[Callable[[], None]] = QueueThreads(name, threads, self._do, niceness=niceness)
        self._lock = threading.Lock()  # Guards both below; an innermost lock.
        self._held = 0  # Running and waiting.
        self._closed = False
        self._ended = False

    def start(self) -> None:
        self._threads.start()

    def close(self) -> None:
        """Refuse further work of pools with a bound; what is queued goes on."""
        self._closed = True

    def join(self, timeout_s: float) -> bool:
        """Finish the queued work and end the threads."""
        if not self._threads.join(timeout_s):
            return False
        self._ended = True
        self._run_rest()
        return True

    def abort(self) -> None:
        """No effect: the threads are daemons."""

    def submit(self, work: Callable[[], None]) -> None:
        """Run it on a thread, after `join` on that of the caller. Raises Overloaded (query_queue), Unavailable
        (draining)."""
        if self._waiting_max is not None:
            self._take_place(self._waiting_max)
        self._threads.put(work)
        if self._ended:  # The last answers are still sent.
            self._run_rest()

    def _take_place(self, waiting_max: int) -> None:
        with self._lock:
            waiting = self._held - len(self._threads)
            error: TsdbError | None = None
            if self._closed:
                error = Unavailable("the process is ending; ask another replica", reason=DRAINING)
            elif waiting >= waiting_max:
                error = Overloaded(
                    f"{len(self._threads)} queries run and {waiting} wait; the limit is {waiting_max} waiting",
                    reason=QUERY_QUEUE,
                    retry_after_s=RETRY_AFTER_S,
                    limit=waiting_max,
                )
            if error is None:
                self._held += 1
                _waiting.inc(1 if waiting >= 0 else 0)
        if error is not None:
            _refused.labels(error.reason).inc()
            raise error

    def _run_rest(self) -> None:
        for work in self._threads.rest():
            self._do(work)

    def _do(self, work: Callable[[], None]) -> None:
        try:
            work()
        except Exception as error:
            log.error("work of a request failed", exc_info=error)
        finally:
            if self._waiting_max is not None:
                self._leave()

    def _leave(self) -> None:
        with self._lock:
            _waiting.dec(1 if self._held > len(self._threads) else 0)
            self._held -= 1
