"""The HTTP server of a process, on a separate thread: serves `/-/ready`, `/-/healthy`, `/metrics`, an index, and body
routes.

Probes are answered with any number of other connections: tsdb.ops.http.connections.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial

import uvicorn
from starlette.routing import Route

from tsdb.model.errors import Unavailable
from tsdb.ops.auth import Tokens
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http.app import OpsThreads, ops_app
from tsdb.ops.http.bodies import BodyRoutes, NoBodyRoutes
from tsdb.ops.http.body import Answers
from tsdb.ops.http.connection import HttpConnection
from tsdb.ops.http.connections import Connections, HttpLimits
from tsdb.ops.http.listener import HttpListener
from tsdb.ops.http.sites import Sites
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.threads import new_thread, report_failure
from tsdb.ops.tls import ServerTls

log = get_logger(__name__)

BACKLOG = 1024  # Connections that the kernel queues until they are accepted. A probe must fit into the queue.
START_TIMEOUT_S = 10.0
GRACE_S = 5
DATE_EVERY_S = 1.0


class _Server(uvicorn.Server):
    """The server of uvicorn, with HttpListener in place of asyncio's listener."""

    def __init__(
        self,
        config: uvicorn.Config,
        listener: socket.socket,
        limits: HttpLimits,
        bodies: BodyRoutes,
        tokens: Tokens | None,
        sites: Sites | None,
        tls: ServerTls | None,
        threads: OpsThreads,
    ) -> None:
        super().__init__(config)
        self._socket = listener
        self._connections = Connections(limits)
        self._bodies = bodies
        self._tokens = tokens
        self._sites = sites
        self._tls = tls.http_contexts() if tls else None
        self._threads = threads
        self._accepting: HttpListener | None = None
        self._ends = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None  # Set while the server runs.

    async def main_loop(self) -> None:
        """Serve until `stop`. uvicorn itself looks ten times a second, which takes 0.14 % of a core."""
        self._loop = asyncio.get_running_loop()
        while not await self.on_tick(0):  # Renews the header `date`.
            with suppress(TimeoutError):
                await asyncio.wait_for(self._ends.wait(), DATE_EVERY_S)

    def stop(self) -> None:
        """End the server. Any thread."""
        self.should_exit = True
        if (loop := self._loop) is not None:
            with suppress(RuntimeError):  # The loop has ended already.
                loop.call_soon_threadsafe(self._ends.set)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await self.lifespan.startup()
        make = partial(
            HttpConnection,
            self._connections,
            self._bodies,
            self._tokens,
            Answers(asyncio.get_running_loop()),
            sites=self._sites,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            _loop=asyncio.get_running_loop(),
        )
        self.servers = []
        self._accepting = HttpListener(self._socket, self._connections, make, self._tls)
        self.started = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if self._accepting is not None:
            self._accepting.close()
        self._socket.close()
        if self.server_state.connections or self.server_state.tasks:
            await super().shutdown()  # It waits for a tenth of a second at the least.
        self._threads.close()


class OpsServer:
    """Created by `serve_ops`. `port`: the bound port. One thread, `ops-http`, owns the event loop and all requests."""

    def __init__(self, server: _Server, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self._server = server
        self._listener = listener
        self._failure: BaseException | None = None
        self._thread = new_thread(self._run, "ops-http")

    def start(self) -> None:
        """Returns once requests are answered. Raises Unavailable (http_start) with the cause."""
        self._thread.start()
        deadline = Deadline.after(START_TIMEOUT_S)
        while not self._server.started:
            # uvicorn has no event for this. The socket already queues new connections.
            self._thread.join(0.005)
            if not self._thread.is_alive() or deadline.expired:
                raise Unavailable(f"the HTTP server did not start: {self._failure}", reason="http_start")
        log.info("ops http server listens", port=self.port)

    def close(self) -> None:
        """Has no effect: probes and scrapes are answered while the rest of the process drains. `join` stops the
        server."""

    def join(self, timeout_s: float) -> bool:
        """Stop accepting and wait. False when requests still run after the timeout. Raises the server's exception."""
        self._server.stop()
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._listener.close()
        if self._failure:
            raise self._failure
        return True

    def abort(self) -> None:
        """Drop the running requests."""
        self._server.force_exit = True
        self.join(GRACE_S)

    def failure(self) -> BaseException | None:
        """The exception that stopped the server; None while it works."""
        return self._failure

    def _run(self) -> None:
        try:
            self._server.run()
        except BaseException as error:
            self._failure = error
            report_failure(error, "ops-http")

    def __enter__(self) -> OpsServer:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()
        if not self.join(GRACE_S):
            self.abort()


def serve_ops(
    host: str,
    port: int,
    readiness: Callable[[], Readiness],
    liveness: Callable[[], Liveness],
    *,
    routes: Sequence[Route] = (),
    bodies: BodyRoutes | None = None,
    tls: ServerTls | None = None,
    tokens: Tokens | None = None,
    limits: HttpLimits | None = None,
    hosts: Sequence[str] = (),
    experiment: str = "",
) -> OpsServer:
    """A server that is bound to host and port (0: any free port), but not started. The callables run on its threads.

    `tokens` guard everything except the two probes. Client certificates are not required, since probes have none.
    Without `tokens` web pages of other sites are refused; hosts: names of this server in URLs, for that check.
    bodies: routes that take a body. experiment: names the metrics; empty: production.
    Raises Unavailable (bind) when the address is not available.

    """
    limits, threads = limits or HttpLimits(), OpsThreads()
    sites = None if tokens else Sites.of(host, hosts)
    config = uvicorn.Config(
        ops_app(readiness, liveness, routes, tokens, limits.requests_max, threads, experiment, sites),
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        http="httptools",
        loop="asyncio",
        server_header=False,
        # Longer than our own timer, so that our timer closes idle connections.
        timeout_keep_alive=round(limits.idle_timeout_s) + 1,
        timeout_graceful_shutdown=GRACE_S,
    )
    listener = _listen(host, port)
    return OpsServer(_Server(config, listener, limits, bodies or NoBodyRoutes(), tokens, sites, tls, threads), listener)


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        address = f"{host}:{port}"
        message = f"cannot listen on {address} for HTTP: {error}"
        raise Unavailable(message, reason="bind", address=address) from error
