"""Endpoints of the pages: serve HTML, and JSON for the scripts. They run on the threads and under the bounds of the
API.

Pages that refresh the same panel share one answer, so that twenty of them cost about as much as one.

A page ends a running query as `tsdb queries --cancel` does.
"""

from __future__ import annotations

import hashlib
import html
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial

import orjson

from tsdb.api.prometheus.answer import JSON, Representation, accepted_encoding, encoded
from tsdb.api.prometheus.call import ApiCall
from tsdb.api.prometheus.endpoints import Endpoint, WorkerPool
from tsdb.api.prometheus.errors import BadParameter, Failure
from tsdb.api.prometheus.parameters import integer
from tsdb.ops.http.bodies import HttpAnswer
from tsdb.ops.metrics import counter
from tsdb.query.promql.running import RunningQuery
from tsdb.ui.answers.completion import completion
from tsdb.ui.answers.copying import copying
from tsdb.ui.answers.explaining import explaining
from tsdb.ui.answers.figure import figure
from tsdb.ui.answers.graph import graph
from tsdb.ui.answers.growth import growth
from tsdb.ui.answers.metrics import metrics
from tsdb.ui.answers.problem import SIGNED_OUT, problem
from tsdb.ui.answers.saving import saving
from tsdb.ui.answers.table import samples, table
from tsdb.ui.answers.variables import formatting
from tsdb.ui.files import url_of
from tsdb.ui.headers import HTML, UNSTORED
from tsdb.ui.pages.page import PageCall, answered
from tsdb.ui.pages.table import PAGES
from tsdb.ui.rendering import FOLDER
from tsdb.ui.session import signed_in, signed_out
from tsdb.ui.sources import UiOptions, UiSources

GET = frozenset({"GET", "HEAD"})
POST = frozenset({"POST"})
SIGN_IN = "/ui/sign-in"
SIGN_OUT = "/ui/sign-out"

_Answer = Callable[[PageCall], bytes]

AGE_S_MAX = 1.0  # A page with live tail refreshes this often, so it misses nothing for longer than one refresh.
ANSWERS_MAX = 32
ANSWER_BYTES_MAX = 1 << 20

_refreshes = counter(
    "tsdb_ui_refreshes_total",
    "Refreshes of panels, by whether they were evaluated or given the answer of the same panel of another page.",
    "kind",
    ("evaluated", "shared"),
)


def endpoints(sources: UiSources, options: UiOptions) -> dict[str, Endpoint]:
    """All endpoints by path."""
    pages = [
        Endpoint(
            page.path, partial(_page, index, sources, options), GET, WorkerPool.LOOKUP, failed_page, cross_origin=False
        )
        for index, page in enumerate(PAGES)
    ]
    answered_json = partial(_json, sources, options, Refreshes())
    scripts = [
        Endpoint(path, partial(answered_json, answer), methods, lane, failed_json, cross_origin=False)
        for path, answer, methods, lane in (
            ("/ui/figure", figure, GET, WorkerPool.LOOKUP),
            ("/ui/graph", graph, POST, WorkerPool.PAGE),
            ("/ui/table", table, POST, WorkerPool.PAGE),
            ("/ui/samples", samples, POST, WorkerPool.PAGE),
            ("/ui/complete", completion, POST, WorkerPool.LOOKUP),
            ("/ui/explain", explaining, POST, WorkerPool.PAGE),
            ("/ui/format", formatting, POST, WorkerPool.LOOKUP),
            ("/ui/metrics", metrics, POST, WorkerPool.LOOKUP),
            ("/ui/copy", copying, POST, WorkerPool.LOOKUP),
            ("/ui/save", saving, POST, WorkerPool.PAGE),
            ("/ui/growth", growth, POST, WorkerPool.PAGE),
            ("/ui/cancel", cancel, POST, WorkerPool.LOOKUP),
        )
    ]
    session = [
        Endpoint(SIGN_IN, partial(_sign_in, options), POST, WorkerPool.LOOKUP, failed_json, cross_origin=False),
        Endpoint(SIGN_OUT, partial(_sign_out, options), POST, WorkerPool.LOOKUP, failed_json, cross_origin=False),
    ]
    return {one.path: one for one in (*pages, *scripts, *session)}


def failed_json(failure: Failure) -> HttpAnswer:
    """The error of an endpoint for scripts."""
    return HttpAnswer(failure.status, orjson.dumps(problem(failure)), JSON, UNSTORED)


def failed_page(failure: Failure) -> HttpAnswer:
    """The page of an error; without a valid token it is the form that asks for one. It needs no library, because the
    error may be that the library is missing."""
    needs_token = failure.status == 401
    problem_text = ("" if "token_missing" in failure.text else SIGNED_OUT) if needs_token else failure.text
    template = (FOLDER / ("sign_in.html" if needs_token else "error.html")).read_text()
    for word, name in (("ICON", "icon.svg"), ("STYLE", "style.css"), ("SCRIPT", "sign-in.js")):
        template = template.replace(word, url_of(name))
    page = template.replace("PROBLEM", html.escape(problem_text))
    return HttpAnswer(failure.status, page.encode(), HTML, UNSTORED)


def _page(index: int, sources: UiSources, options: UiOptions, call: ApiCall) -> Representation:
    return answered(PAGES[index], PAGES, PageCall(call, sources, options))


def _json(
    sources: UiSources, options: UiOptions, refreshes: Refreshes, answer: _Answer, call: ApiCall
) -> Representation:
    encoding = accepted_encoding(call.head.headers.get("accept-encoding", ""))

    def made() -> bytes:
        return b"".join(encoded(iter((answer(PageCall(call, sources, options)),)), encoding))

    data = refreshes.answer(_key(call, encoding), call.running, made) if call.form.flag("refresh") else made()
    headers = (*UNSTORED, ("content-encoding", encoding)) if encoding else UNSTORED
    return Representation(iter((data,)), JSON, headers)


def _key(call: ApiCall, encoding: str) -> tuple[str, str, bytes, bytes]:
    """The path, the encoding, and the hashes of the parameters, which may have megabytes."""
    query, body = (hashlib.sha256(part).digest() for part in (call.head.query.encode(), call.body))
    return call.head.path, encoding, query, body


def _sign_in(options: UiOptions, call: ApiCall) -> Representation:
    # The server has checked the token of the header before.
    return Representation(iter((b"{}",)), JSON, (*UNSTORED, signed_in(call.head, is_secure=options.is_secure)))


def _sign_out(options: UiOptions, _call: ApiCall) -> Representation:
    return Representation(iter((b"{}",)), JSON, (*UNSTORED, signed_out(is_secure=options.is_secure)))


class Refreshes:
    """The answers of the last second, at most ANSWERS_MAX. An answer above ANSWER_BYTES_MAX is shared only with calls
    that wait for it. Thread-safe."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()  # Guards _answers; an innermost lock.
        # The time at which the evaluation began, and its answer, by key. The oldest is first.
        self._answers: OrderedDict[Hashable, tuple[float, Future[bytes]]] = OrderedDict()

    def answer(self, key: Hashable, query: RunningQuery, make: Callable[[], bytes]) -> bytes:
        """The answer of `make`, or one of the same key whose evaluation began at most AGE_S_MAX ago. query: the call;
        its end ends a wait for another call's evaluation. Raises the errors of `make`, QueryCanceled, QueryTimedOut."""
        while True:
            found, is_own = self._found(key)
            if is_own:
                return self._make(key, found, make)
            if _answered(found, query):
                _refreshes.labels("shared").inc()
                return found.result()

    def _found(self, key: Hashable) -> tuple[Future[bytes], bool]:
        """The answer of a key, and whether the caller has to make it."""
        now = self._now()
        with self._lock:
            while self._answers and next(iter(self._answers.values()))[0] + AGE_S_MAX <= now:
                self._answers.popitem(last=False)
            if key in self._answers:
                return self._answers[key][1], False
            if len(self._answers) >= ANSWERS_MAX:
                self._answers.popitem(last=False)
            answer = Future[bytes]()
            self._answers[key] = now, answer
            return answer, True

    def _make(self, key: Hashable, answer: Future[bytes], make: Callable[[], bytes]) -> bytes:
        _refreshes.labels("evaluated").inc()
        try:
            made = make()
        except BaseException:
            self._forget(key, answer)
            answer.cancel()  # Calls that wait evaluate it themselves: the error may be of this call alone.
            raise
        if len(made) > ANSWER_BYTES_MAX:
            self._forget(key, answer)
        answer.set_result(made)
        return made

    def _forget(self, key: Hashable, answer: Future[bytes]) -> None:
        with self._lock:
            if key in self._answers and self._answers[key][1] is answer:
                del self._answers[key]


def _answered(answer: Future[bytes], query: RunningQuery) -> bool:
    """Wait for an answer; whether there is one. Raises QueryCanceled, QueryTimedOut."""
    ended = threading.Event()
    answer.add_done_callback(lambda _: ended.set())
    if not query.add_callback(ended.set):
        ended.set()  # The query has ended.
    ended.wait(max(0.0, query.time_remaining()))
    query.check()
    return not answer.cancelled()


def cancel(asked: PageCall) -> bytes:
    """Answers `/ui/cancel`: `number` is that of the query. found: whether it ran. Raises BadParameter."""
    try:
        number = integer(asked.call.form.get("number"))
    except ValueError as error:
        raise BadParameter("number", error) from None
    return orjson.dumps({"status": "success", "found": asked.call.sources.running.cancel(number)})
