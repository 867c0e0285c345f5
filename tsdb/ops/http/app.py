"""The routes of the ops HTTP server: probes, metrics, index. Each calls a function for its answer and has no state."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, TypeVar

from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from tsdb.model.errors import InvalidRequest, Unauthenticated
from tsdb.ops.auth import Tokens, log_failure
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.connection import host_port, requests_total
from tsdb.ops.http.experiment_metrics import experiment_registry
from tsdb.ops.http.sites import Sites
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import registry
from tsdb.ops.process_metrics import package_version  # Registers further metrics that /metrics shows.

log = get_logger(__name__)

READY = "/-/ready"
HEALTHY = "/-/healthy"
METRICS = "/metrics"
PROBES = frozenset((READY, HEALTHY))

PROBE_THREADS = 8  # Threads for the probes alone.
METRICS_THREADS = 2  # Encoding holds the GIL, so more threads are no faster.
RETRY_AFTER_S = 1

Result = TypeVar("Result")

_Endpoint = Callable[[Request], Awaitable[Response]]


class OpsThreads:
    """Threads on which probes and scrapes run. Those of anyio, which Starlette brings, load 5 MiB of modules."""

    def __init__(self) -> None:
        self.probes = ThreadPoolExecutor(PROBE_THREADS, "http-probe")
        self.scrapes = ThreadPoolExecutor(METRICS_THREADS, "http-metrics")

    def close(self) -> None:
        """End the threads, without a wait for what they still run."""
        self.probes.shutdown(wait=False)
        self.scrapes.shutdown(wait=False)


def ops_app(
    readiness: Callable[[], Readiness],
    liveness: Callable[[], Liveness],
    routes: Sequence[Route],
    tokens: Tokens | None,
    requests_max: int,
    threads: OpsThreads,
    experiment: str = "",
    sites: Sites | None = None,
) -> Starlette:
    """The ASGI application of a server. `routes`: further routes of the role. With `tokens`, all but the probes need a
    bearer token.

    requests_max: requests at once, probes not counted; more are refused with 503. experiment: names the metrics; empty:
    production. sites: refuses pages of other sites; None: no check.

    """
    shown = experiment_registry(registry, experiment) if experiment else registry

    async def ready(_request: Request) -> Response:
        seen = await _on(threads.probes, readiness)
        return JSONResponse(_readiness_json(seen), 200 if seen.ready else 503)

    async def healthy(_request: Request) -> Response:
        seen = await _on(threads.probes, liveness)
        answer = {"alive": seen.alive, "reason": seen.reason, "version": package_version()}
        return JSONResponse(answer, 200 if seen.alive else 503)

    async def index(_request: Request) -> Response:
        paths = [READY, HEALTHY, METRICS, *(route.path for route in routes)]
        return PlainTextResponse("kafka-tsdb\n\n" + "\n".join(paths) + "\n")

    async def metrics(request: Request) -> Response:
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        # On a thread, so that it does not delay a probe.
        return Response(await _on(threads.scrapes, partial(encode, shown)), media_type=content_type)

    own = [Route("/", index), Route(READY, ready), Route(HEALTHY, healthy), Route(METRICS, metrics)]
    known = frozenset(route.path for route in (*own, *routes))
    for path in known:
        requests_total.labels(path, "200")
    return Starlette(
        routes=[*own, *routes],
        exception_handlers={Exception: _failed},
        middleware=[Middleware(_Guard, tokens=tokens, known=known, requests_max=requests_max, sites=sites)],
    )


def _on(threads: ThreadPoolExecutor, do: Callable[[], Result]) -> Awaitable[Result]:
    return asyncio.get_running_loop().run_in_executor(threads, do)


def _readiness_json(seen: Readiness) -> dict[str, Any]:
    partitions = {
        str(partition): {"ready": health.ready, "reason": health.reason, **health.details}
        for partition, health in sorted(seen.partitions.items())
    }
    message = {"message": seen.message} if seen.message else {}
    jobs = {"jobs": {kind: dict(details) for kind, details in seen.jobs.items()}} if seen.jobs else {}
    return {"ready": seen.ready, "reason": seen.reason, **message, "partitions": partitions, **jobs}


async def _failed(_request: Request, error: Exception) -> Response:
    log.error("http request failed", exc_info=error)
    return JSONResponse({"error": "internal error; the server's log has the details"}, 500)


class _Guard:
    """Checks tokens, bounds the running requests, and counts answers by route and code.

    The label `route` is a known path or "unknown", never the caller's path: callers choose their paths.
    """

    def __init__(
        self, app: ASGIApp, *, tokens: Tokens | None, known: frozenset[str], requests_max: int, sites: Sites | None
    ) -> None:
        self._app = app
        self._tokens = tokens
        self._known = known
        self._requests_max = requests_max
        self._sites = sites
        self._running = 0  # Changed by the event loop's thread alone.

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope.get("path", "")
        route = path if path in self._known else "unknown"

        async def counted_send(message: Any) -> None:
            if message["type"] == "http.response.start":
                requests_total.labels(route, str(message["status"])).inc()
            await send(message)

        try:
            if self._tokens and path not in PROBES:
                self._tokens.check(Headers(scope=scope).get("authorization"), server="http")
            if self._sites and path not in PROBES:
                self._sites.check(scope["method"], dict(Headers(scope=scope)))
        except InvalidRequest as error:
            await JSONResponse({"error": error.message}, 403)(scope, receive, counted_send)
            return
        except Unauthenticated as error:
            log_failure(error, "http", host_port(scope.get("client")))
            refusal = JSONResponse({"error": error.message}, 401, headers={"www-authenticate": "Bearer"})
            await refusal(scope, receive, counted_send)
            return
        if scope["method"] == "OPTIONS" and path in self._known:
            await Response(headers={"allow": "GET, HEAD, OPTIONS"})(scope, receive, counted_send)
        elif path in PROBES:
            await self._app(scope, receive, counted_send)
        elif self._running >= self._requests_max:
            message = f"{self._running} requests are running; limit is {self._requests_max}: try again soon"
            refusal = JSONResponse({"error": message}, 503, headers={"retry-after": str(RETRY_AFTER_S)})
            await refusal(scope, receive, counted_send)
        else:
            self._running += 1
            try:
                await self._app(scope, receive, counted_send)
            finally:
                self._running -= 1
