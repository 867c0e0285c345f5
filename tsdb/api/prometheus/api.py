"""PrometheusApi: has the routes of the API and its threads.

A request passes the event loop (body), a thread of its lane (parameters, reading, evaluation, the first piece of the
answer) and, for a large answer, the threads that write pieces while the event loop sends those before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

from tsdb.api.prometheus.answer import (
    JSON,
    AnswerStream,
    Representation,
    Result,
    accepted_encoding,
    encoded,
    failed,
    next_pieces,
    success,
)
from tsdb.api.prometheus.call import ApiCall, ApiOptions, ApiSources
from tsdb.api.prometheus.endpoints import OUTSIDE, PREFIX, Endpoint, WorkerPool, endpoint_of
from tsdb.api.prometheus.errors import METHOD, NO_ROUTE, Failure, failure_of
from tsdb.api.prometheus.pages.query import is_of_bounds
from tsdb.api.prometheus.parameters import Form
from tsdb.api.prometheus.small import SmallQueries
from tsdb.api.prometheus.work_pool import WorkPool
from tsdb.model.errors import InvalidRequest, TsdbError
from tsdb.ops.byte_budget import RequestBytes, Reserved
from tsdb.ops.http.bodies import HttpAnswer, HttpHead, Reply
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import adder, counter
from tsdb.query.promql.running import IN_QUEUE, QUERY_CANCELED, QUERY_TIMEOUT, RunningQuery
from tsdb.reader.read_call import ReservedBytes
from tsdb.selector.pattern import compile_pattern

OPTIONS = "OPTIONS"
BODY_BYTES_MAX = 4 << 20  # A query has at most 1 Mi characters, of one to three bytes each in a form.
PAGE_NICENESS = 10  # Open pages refresh by themselves; writes, and reads of people and rules, get a core before them.
PAGE_THREADS = 2  # A slow query of one page leaves a thread to the others.
SPARE_THREADS = 32  # Threads for work that waits for stores, history or the log. A thread starts when it is needed.
WRITERS = 2  # Threads that write the pieces of large answers; they wait for nothing.

_requests = counter(
    "tsdb_query_requests_total",
    "Requests of the Prometheus API that were begun: queries, those of pages apart, and lookups of all else.",
    "kind",
    tuple(lane.value for lane in WorkerPool),
)
_count_request = {lane: adder(_requests.labels(lane.value)) for lane in WorkerPool}
_failures = counter(
    "tsdb_query_failures_total",
    "Requests of the Prometheus API that were answered with an error, by its errorType.",
    "reason",
    ("bad_data", "canceled", "execution", "internal", "not_found", "timeout", "unauthorized", "unavailable"),
)

log = get_logger(__name__)

# Headers by which a browser lets a page of another site read an answer.
_CROSS_ORIGIN = (
    ("access-control-allow-headers", "Accept, Authorization, Content-Type, Origin"),
    ("access-control-allow-methods", "GET, POST, OPTIONS"),
    ("access-control-expose-headers", "Date"),
    ("vary", "Origin"),
)
_ALL_ORIGINS = ".*"


class PrometheusApi:
    """Serves the API: a component that starts and stops, and the BodyRoutes of the server. held: the budget for the
    memory of requests.
    """

    def __init__(self, sources: ApiSources, options: ApiOptions, held: RequestBytes) -> None:
        self.running = sources.running
        self._sources = sources
        self._options = options
        self._held = held
        self._routes: dict[str, _Route] = {}
        self._origins = CrossOrigin(options.cors_origin)
        self._lanes = {
            WorkerPool.QUERY: WorkPool("query", options.running_max, options.waiting_max, spare=SPARE_THREADS),
            WorkerPool.LOOKUP: WorkPool("query-lookup", options.lookups_max, options.waiting_max, spare=SPARE_THREADS),
            WorkerPool.PAGE: WorkPool(
                "query-page", PAGE_THREADS, options.waiting_max, spare=SPARE_THREADS, niceness=PAGE_NICENESS
            ),
        }
        self._writers = WorkPool("query-write", WRITERS)
        small = sources.open_small
        self._small = None if small is None else SmallQueries(sources, options, small)

    @property
    def request_timeout_s(self) -> float:
        """Longest time of a request, from its header until the peer has the answer."""
        return self._options.timeout_s + self._options.send_s

    def route(self, method: str, path: str) -> _Route | None:
        """See BodyRoutes. A wrong method and an unknown path of the API are refused by the route's `check`."""
        if not path.startswith(PREFIX) and path not in OUTSIDE:
            return None
        known = self._routes.get(path)
        if known is not None:
            return known
        endpoint, variable = endpoint_of(path) or (None, "")
        route = _Route(self, endpoint, variable, self._held)
        if endpoint is not None and not variable:  # At most one entry for each endpoint is kept.
            self._routes[path] = route
        return route

    def start(self) -> None:
        """Start the threads of all pools."""
        for pool in (*self._lanes.values(), self._writers):
            pool.start()

    def close(self) -> None:
        """Refuse further requests as draining. Requests that were accepted continue."""
        self._small = None
        for pool in self._lanes.values():
            pool.close()

    def join(self, timeout_s: float) -> bool:
        """Finish the requests in hand. The writers go last, for they end the answers."""
        deadline = Deadline.after(timeout_s)
        return all(pool.join(deadline.remaining()) for pool in (*self._lanes.values(), self._writers))

    def abort(self) -> None:
        """End the running queries, those of gRPC too: the process ends."""
        for query in self.running.all():
            query.end("canceled")

    def take(self, endpoint: Endpoint, variable: str, head: HttpHead, body: bytes | bytearray, reply: Reply) -> None:
        """Answer a small query; queue another request for its worker pool. Called on the thread of the event loop."""
        kind = endpoint.path.removeprefix(PREFIX)
        running = self.running.open(kind, self._options.timeout_s, head.peer)
        if endpoint.may_be_small and self._small is not None and self._small.tries(head, body):
            answer = self._tried(self._small, endpoint, head, body, running)
            if answer is not None:
                reply(answer)
                return
        reply.on_drop(partial(running.end, "peer_left"))
        try:
            work = partial(self._run, endpoint, variable, head, body, running, reply)
            self._lanes[endpoint.lane].submit(work, _client(head))
        except TsdbError as error:
            reply(self.refusal(head, error, endpoint))

    def options(self, head: HttpHead) -> HttpAnswer:
        """The answer to OPTIONS. As in Prometheus, a path without an endpoint has one too."""
        return HttpAnswer(204, content_type="", headers=self._origins.headers(head.headers))

    def allows_origin(self, origin: str) -> bool:
        """Whether pages of another origin may send queries."""
        return self._origins.allows(origin)

    def run(self, work: Callable[[], None]) -> None:
        """Queue work of other routes among the lookups; it must not raise. Raises Overloaded, Unavailable."""
        self._lanes[WorkerPool.LOOKUP].submit(work)

    def refusal(self, head: HttpHead, error: TsdbError, endpoint: Endpoint | None) -> HttpAnswer:
        """The answer to a request that failed. endpoint: None for an unknown path."""
        failure = failure_of(error)
        _failures.labels(failure.type.value).inc()
        return self._error_answer(head, failure, endpoint)

    def _tried(
        self, small: SmallQueries, endpoint: Endpoint, head: HttpHead, body: bytes | bytearray, running: RunningQuery
    ) -> HttpAnswer | None:
        """The answer to a small query. None: a thread answers it."""
        form = Form.of(head, body)
        if small.is_large(form.get("query")):
            return None
        began_s = time.thread_time()
        held = ReservedBytes(small.sources.answers, running.peer)
        call = ApiCall(head, body, form, "", running, small.sources, small.options, held, began_s)
        self.running.add(running)
        answer: HttpAnswer | None = None
        try:
            answer = self._answer(endpoint, call)
        except Exception as error:
            held.release()
            if isinstance(error, TsdbError) and not is_of_bounds(error):
                answer = self.refusal(head, error, endpoint)
        finally:
            self.running.remove(running)
            small.add(form.get("query"), time.thread_time() - began_s, is_answered=answer is not None)
        if answer is not None:
            _count_request[endpoint.lane](1)
        return answer

    def _run(
        self,
        endpoint: Endpoint,
        variable: str,
        head: HttpHead,
        body: bytes | bytearray,
        running: RunningQuery,
        reply: Reply,
    ) -> None:
        _count_request[endpoint.lane](1)
        held = ReservedBytes(self._sources.answers, running.peer)
        self.running.add(running)
        try:
            running.check(IN_QUEUE)
            form = Form.of(head, body)
            call = ApiCall(head, body, form, variable, running, self._sources, self._options, held)
            answer = self._answer(endpoint, call)
        except TsdbError as error:
            held.release()
            answer = self.refusal(head, _cause(running, error), endpoint)
        except Exception as error:
            held.release()
            log.error("request of the Prometheus API failed", path=endpoint.path, exc_info=error)
            answer = self.refusal(head, TsdbError("internal error; the server's log has the details"), endpoint)
        finally:
            self.running.remove(running)
        reply(answer)

    def _answer(self, endpoint: Endpoint, call: ApiCall) -> HttpAnswer:
        result = endpoint.answer(call)
        made = result if isinstance(result, Representation) else _json(result, call.head)
        first, is_last = next_pieces(made.pieces)
        stream = None if is_last else AnswerStream(made.pieces, self._writers.submit, call.held.release)
        if stream is None:
            call.held.release()
        headers = (*self._origin_headers(call.head, endpoint), *made.headers)
        return HttpAnswer(made.status, b"".join(first), made.content_type, headers, stream)

    def _origin_headers(self, head: HttpHead, endpoint: Endpoint | None) -> tuple[tuple[str, str], ...]:
        return self._origins.headers(head.headers) if endpoint is None or endpoint.cross_origin else ()

    def _error_answer(self, head: HttpHead, failure: Failure, endpoint: Endpoint | None) -> HttpAnswer:
        headers = self._origin_headers(head, endpoint)
        if failure.retry_after_s is not None:
            headers = (*headers, ("retry-after", str(failure.retry_after_s)))
        if failure.status == 401:
            headers = (*headers, ("www-authenticate", "Bearer"))
        if failure.status == 405 and endpoint is not None:
            headers = (*headers, ("allow", ", ".join(sorted(endpoint.methods))))
        answer = failed(failure) if endpoint is None else endpoint.failed(failure)
        return replace(answer, headers=(*headers, *answer.headers))


def _client(head: HttpHead) -> str:
    """The client of a request, to which slots are fair: its token, or the host of a connection without one."""
    return head.headers.get("authorization") or head.peer.rpartition(":")[0]


def _json(result: Result, head: HttpHead) -> Representation:
    """A result in the envelope, compressed where the request accepts it."""
    encoding = accepted_encoding(head.headers.get("accept-encoding", ""))
    headers = (("content-encoding", encoding),) if encoding else ()
    return Representation(encoded(success(result), encoding), JSON, headers)


def _cause(running: RunningQuery, error: TsdbError) -> TsdbError:
    """Why a request failed: the error of a read that was cut off does not name the end of the query."""
    if error.reason in (QUERY_TIMEOUT, QUERY_CANCELED):
        return error
    try:
        running.check()
    except TsdbError as ended:
        return ended
    return error


class _Route:
    """A path of the API in the form that the server needs. endpoint: None for an unknown path."""

    bytes_max = BODY_BYTES_MAX
    is_open = False

    def __init__(self, api: PrometheusApi, endpoint: Endpoint | None, variable: str, held: RequestBytes) -> None:
        self.name = "unknown" if endpoint is None else endpoint.path
        self.held = held
        self.request_timeout_s: float | None = api.request_timeout_s
        self._api = api
        self._endpoint = endpoint
        self._variable = variable

    def authorization(self, head: HttpHead) -> str | None:
        return head.headers.get("authorization")

    def check(self, head: HttpHead) -> None:
        """Raises InvalidRequest (no_such_route, method_not_allowed)."""
        if head.method == OPTIONS:
            return
        if self._endpoint is None:
            raise InvalidRequest(f"no endpoint {head.path}", reason=NO_ROUTE)
        if head.method not in self._endpoint.methods:
            accepted = ", ".join(sorted(self._endpoint.methods))
            raise InvalidRequest(f"method {head.method} is not allowed; send {accepted}", reason=METHOD)

    def allows_origin(self, origin: str) -> bool:
        return (self._endpoint is None or self._endpoint.cross_origin) and self._api.allows_origin(origin)

    def handle(self, head: HttpHead, body: bytes | bytearray, reserved: Reserved, reply: Reply) -> None:
        """Queue the request for a thread of its lane."""
        if head.method == OPTIONS:
            reply(self._api.options(head))
            return
        assert self._endpoint is not None, "`check` refuses an unknown path"
        self._api.take(self._endpoint, self._variable, head, body, reply)

    def refusal(self, head: HttpHead, error: TsdbError) -> HttpAnswer:
        return self._api.refusal(head, error, self._endpoint)


class CrossOrigin:
    """allowed: a regular expression for origins, anchored. Raises InvalidRequest for a malformed one."""

    def __init__(self, allowed: str) -> None:
        self._all = allowed == _ALL_ORIGINS
        self._pattern = compile_pattern(allowed)

    def allows(self, origin: str) -> bool:
        """Whether pages of an origin may read answers."""
        return self._all or self._pattern.matches(origin.encode(errors="replace"))

    def headers(self, headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
        """Headers of the answer to a request that has these headers."""
        origin = headers.get("origin", "")
        if not origin:
            return ()
        if self._all:
            return (*_CROSS_ORIGIN, ("access-control-allow-origin", "*"))
        if self.allows(origin):
            return (*_CROSS_ORIGIN, ("access-control-allow-origin", origin))
        return _CROSS_ORIGIN
