"""UiRoutes: serves the routes of the pages, beside those of the API, on the same server.

Files in memory are answered on the event loop. All else runs on the threads of the API.
"""

from __future__ import annotations

from functools import partial

from tsdb.api.prometheus.api import BODY_BYTES_MAX, PrometheusApi
from tsdb.api.prometheus.endpoints import Endpoint
from tsdb.api.prometheus.errors import METHOD, failure_of
from tsdb.model.errors import InvalidRequest, TsdbError
from tsdb.ops.byte_budget import RequestBytes, Reserved
from tsdb.ops.http.bodies import BodyRoute, HttpAnswer, HttpHead, Reply
from tsdb.ops.metrics import counter
from tsdb.ui import files, session
from tsdb.ui.endpoints import endpoints, failed_json
from tsdb.ui.sources import UiOptions, UiSources

CROSS_SITE = "cross_site"
_LINKS_OF_PROMETHEUS = "/graph"

_refused = counter(
    "tsdb_ui_refused_total",
    "Requests of pages that were refused before their work began: made by a page of another site.",
    "reason",
    (CROSS_SITE,),
)


class UiRoutes:
    """The BodyRoutes of the pages. held: the budget for the memory of requests."""

    def __init__(self, api: PrometheusApi, sources: UiSources, options: UiOptions, held: RequestBytes) -> None:
        self._endpoints = endpoints(sources, options)
        self._endpoints[_LINKS_OF_PROMETHEUS] = self._endpoints["/"]
        self._routes: dict[str, BodyRoute] = {path: _Route(api, one, held) for path, one in self._endpoints.items()}
        self._files = _Files(api, held)

    def route(self, method: str, path: str) -> BodyRoute | None:
        if path.startswith(files.PREFIX):
            return self._files
        return self._routes.get(path)


class _Route:
    """One page, or one endpoint of the scripts."""

    bytes_max = BODY_BYTES_MAX
    is_open = False

    def __init__(self, api: PrometheusApi, endpoint: Endpoint, held: RequestBytes) -> None:
        self.name = endpoint.path
        self.held = held
        self.request_timeout_s: float | None = api.request_timeout_s
        self._api = api
        self._endpoint = endpoint

    def authorization(self, head: HttpHead) -> str | None:
        return session.authorization(head)

    def check(self, head: HttpHead) -> None:
        """Raises InvalidRequest (method_not_allowed, cross_site)."""
        if head.method not in self._endpoint.methods:
            accepted = ", ".join(sorted(self._endpoint.methods))
            raise InvalidRequest(f"method {head.method} is not allowed; send {accepted}", reason=METHOD)
        is_link = head.method == "GET" and head.headers.get("sec-fetch-mode") == "navigate"
        if session.is_cross_site(head) and not is_link:
            _refused.labels(CROSS_SITE).inc()
            raise InvalidRequest("a page of another site made this request; open this server's own", reason=CROSS_SITE)

    def allows_origin(self, origin: str) -> bool:
        return False

    def handle(self, head: HttpHead, body: bytes | bytearray, reserved: Reserved, reply: Reply) -> None:
        """Queue the request for a thread of its lane."""
        self._api.take(self._endpoint, "", head, body, reply)

    def refusal(self, head: HttpHead, error: TsdbError) -> HttpAnswer:
        return self._api.refusal(head, error, self._endpoint)


class _Files:
    """Serves all files. They are the same for everybody and need no token, because the form that asks for a token uses
    them.
    """

    name = files.PREFIX
    bytes_max = 0
    is_open = True
    request_timeout_s = None

    def __init__(self, api: PrometheusApi, held: RequestBytes) -> None:
        self.held = held
        self._api = api

    def authorization(self, head: HttpHead) -> str | None:
        return None

    def check(self, head: HttpHead) -> None:
        """Raises InvalidRequest (no_such_route, method_not_allowed)."""
        if head.method not in ("GET", "HEAD"):
            raise InvalidRequest(f"method {head.method} is not allowed; send GET", reason=METHOD)
        if not files.is_file(head.path.removeprefix(files.PREFIX)):
            raise InvalidRequest(f"no file {head.path}", reason="no_such_route")

    def allows_origin(self, origin: str) -> bool:
        return False

    def handle(self, head: HttpHead, body: bytes | bytearray, reserved: Reserved, reply: Reply) -> None:
        name = head.path.removeprefix(files.PREFIX)
        if files.is_loaded(name):
            reply(files.answer(name, head))
            return
        try:
            self._api.run(partial(self._load, name, head, reply))
        except TsdbError as error:
            reply(self.refusal(head, error))

    def refusal(self, head: HttpHead, error: TsdbError) -> HttpAnswer:
        return failed_json(failure_of(error))

    def _load(self, name: str, head: HttpHead, reply: Reply) -> None:
        try:
            answer = files.answer(name, head)
        except TsdbError as error:
            answer = self.refusal(head, error)
        reply(answer)
