"""Running queries: the list of them, and how each ends before its time.

A query ends early when its time is over, its peer leaves, or an operator cancels it. Evaluation and reads look at that
between their parts.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tsdb.api.prometheus.errors import QueryCanceled, QueryTimedOut
from tsdb.ops.metrics import counter, gauge

IN_QUEUE, IN_EVALUATION = "query queue", "expression evaluation"

_running = gauge("tsdb_query_running", "PromQL queries and lookups of labels that are being answered.")
_ended = counter(
    "tsdb_query_ended_early_total",
    "PromQL queries and lookups that ended before they had an answer: over their time, their peer left, or cancelled.",
    "reason",
    ("timeout", "peer_left", "canceled"),
)


class RunningQuery:
    """One request. It is a Caller (tsdb.reader.read_call) for the reads that it makes, which end with it.

    text: of the query, or of its selectors. Thread-safe.
    """

    def __init__(self, number: int, kind: str, peer: str, timeout_s: float) -> None:
        self.number = number
        self.kind = kind
        self.text = ""
        self.started_at = time.time()
        self._arrived = time.monotonic()
        self._ends = self._arrived + timeout_s
        self._peer = peer
        self._reason = ""
        self._lock = threading.Lock()  # Guards all below, and _reason; an innermost lock.
        self._callbacks: list[Callable[[], None]] = []

    @property
    def age_s(self) -> float:
        """Seconds since the request arrived."""
        return time.monotonic() - self._arrived

    def shorten(self, timeout_s: float) -> None:
        """Set the time limit of the request itself, from its arrival."""
        self._ends = min(self._ends, self._arrived + timeout_s)

    def end(self, reason: str) -> None:
        """End it: `peer_left` or `canceled`. Returns at once; the calls that it waits for end."""
        with self._lock:
            if self._reason:
                return
            self._reason = reason
            callbacks, self._callbacks = self._callbacks, []
        _ended.labels(reason).inc()
        for callback in callbacks:
            callback()

    def check(self, where: str = IN_EVALUATION) -> None:
        """Raises QueryCanceled, QueryTimedOut."""
        if self._reason == "timeout" or (not self._reason and time.monotonic() >= self._ends):
            self.end("timeout")
            raise QueryTimedOut(where)
        if self._reason:
            raise QueryCanceled(where)

    def time_remaining(self) -> float:
        return self._ends - time.monotonic()

    def is_active(self) -> bool:
        return not self._reason

    def add_callback(self, callback: Callable[[], None]) -> bool:
        with self._lock:
            if self._reason:
                return False
            self._callbacks.append(callback)
        return True

    def peer(self) -> str:
        return self._peer


class RunningQueries:
    """The running queries of a process. Thread-safe."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # Guards _queries; an innermost lock.
        self._queries: dict[int, RunningQuery] = {}

    def open(self, kind: str, timeout_s: float) -> RunningQuery:
        """A request that has arrived. kind: of its endpoint."""
        number = next(self._numbers)
        return RunningQuery(number, kind, f"http-query-{number}", timeout_s)

    @contextmanager
    def listed(self, query: RunningQuery) -> Iterator[None]:
        """Within the block the query is in the list."""
        with self._lock:
            self._queries[query.number] = query
        _running.inc()
        try:
            yield
        finally:
            _running.dec()
            with self._lock:
                del self._queries[query.number]

    def all(self) -> list[RunningQuery]:
        """Those that run now, the oldest first."""
        with self._lock:
            return list(self._queries.values())

    def cancel(self, number: int) -> bool:
        """End one; False when it does not run."""
        with self._lock:
            query = self._queries.get(number)
        if query is None:
            return False
        query.end("canceled")
        return True
