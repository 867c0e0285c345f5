"""Running queries of a process: lists them, and ends a query early.

The HTTP API and the Reader service of a process share one list. A query ends early when its time limit passes, its peer
leaves, or an operator cancels it. Evaluation and reads check for that between their parts.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable

from tsdb.model.errors import TsdbError
from tsdb.ops.metrics import adder, counter, gauge
from tsdb.query.promql.slow import SlowQueries
from tsdb.v1 import reader_pb2

TEXT_CHARS_MAX = 2000  # Characters of a query in the list and in the log.
GRPC_QUERY = "grpc_query"  # Kind of a query of Reader.Query.
QUERY_TIMEOUT = "query_timeout"
QUERY_CANCELED = "query_canceled"
IN_QUEUE, IN_EVALUATION = "query queue", "expression evaluation"

_running = gauge("tsdb_query_running", "PromQL queries and lookups of labels that are being answered.")
_add_running = adder(_running)
_ended = counter(
    "tsdb_query_ended_early_total",
    "PromQL queries and lookups that ended before they had an answer: over their time, their peer left, or cancelled.",
    "reason",
    ("timeout", "peer_left", "canceled"),
)


class QueryTimedOut(TsdbError):
    """The time for a query has passed."""

    default_reason = QUERY_TIMEOUT

    def __init__(self, where: str) -> None:
        super().__init__(f"query timed out in {where}")


class QueryCanceled(TsdbError):
    """A query was ended by its caller or by an operator."""

    default_reason = QUERY_CANCELED

    def __init__(self, where: str) -> None:
        super().__init__(f"query was canceled in {where}")


class RunningQuery:
    """One request. It is a Caller (tsdb.reader.read_call) for the reads that it makes, which end with it.

    kind: the endpoint of the HTTP API, or GRPC_QUERY. text: the text of the query, or of its selectors. address: the
    address of the caller's connection; "" for an unknown one. Thread-safe.
    """

    def __init__(self, number: int, kind: str, timeout_s: float, address: str) -> None:
        self.number = number
        self.kind = kind
        self.text = ""
        self.address = address
        self.started_at = time.time()
        self._arrived = time.monotonic()
        self._ends = self._arrived + timeout_s
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
        """End the query for `peer_left` or `canceled`. Returns at once; the calls that the query waits for end."""
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

    def is_canceled(self) -> bool:
        """Whether an operator has ended the query."""
        return self._reason == "canceled"

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
        # One connection of a proxy carries the queries of several users: each query has its own share of the memory.
        return f"http-query-{self.number}"


class RunningQueries:
    """The running queries of a process. slow: receives queries that took long, after their end. Thread-safe."""

    def __init__(self) -> None:
        self.slow = SlowQueries()
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()  # Guards _queries; an innermost lock.
        self._queries: dict[int, RunningQuery] = {}

    def open(self, kind: str, timeout_s: float, address: str = "") -> RunningQuery:
        """A request that has arrived. See RunningQuery."""
        return RunningQuery(next(self._numbers), kind, timeout_s, address)

    def add(self, query: RunningQuery) -> None:
        """List the query, until `remove`."""
        with self._lock:
            self._queries[query.number] = query
        _add_running(1)

    def remove(self, query: RunningQuery) -> None:
        """The query has its answer or its error."""
        _add_running(-1)
        with self._lock:
            del self._queries[query.number]

    def all(self) -> list[RunningQuery]:
        """Queries that run now, the oldest first."""
        with self._lock:
            return list(self._queries.values())

    def to_proto(self) -> reader_pb2.QueriesResponse:
        """The list as Reader.Queries has it, texts cut at TEXT_CHARS_MAX."""
        return reader_pb2.QueriesResponse(queries=map(_message, self.all()))

    def cancel(self, number: int) -> bool:
        """End a query. False when it does not run."""
        with self._lock:
            query = self._queries.get(number)
        if query is None:
            return False
        query.end("canceled")
        return True


def _message(query: RunningQuery) -> reader_pb2.RunningQuery:
    return reader_pb2.RunningQuery(
        number=query.number,
        kind=query.kind,
        text=query.text[:TEXT_CHARS_MAX],
        started_ms=round(query.started_at * 1000),
        age_s=query.age_s,
        peer=query.address,
    )
