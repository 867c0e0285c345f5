"""The ops HTTP server of a process, on a thread of its own: `/-/ready`, `/-/healthy`, `/metrics`, and an index."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Sequence

import uvicorn
from starlette.routing import Route

from tsdb.model.errors import Unavailable
from tsdb.ops.auth import Tokens
from tsdb.ops.health import Liveness, Readiness
from tsdb.ops.http_app import ops_app
from tsdb.ops.lifecycle import Deadline
from tsdb.ops.logs import get_logger
from tsdb.ops.tls import ServerTls

log = get_logger(__name__)

CONNECTIONS_MAX = 512  # probes and scrapers are few; strangers beyond this get 503
HEADER_BYTES_MAX = 16 << 10
START_TIMEOUT_S = 10.0
GRACE_S = 5


class OpsServer:
    """Made by `serve_ops`. `port` is the real one. One thread, `ops-http`, owns the event loop and all requests."""

    def __init__(self, server: uvicorn.Server, listener: socket.socket) -> None:
        self.port: int = listener.getsockname()[1]
        self._server = server
        self._listener = listener
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="ops-http", daemon=True)

    def start(self) -> None:
        """Returns once requests are answered. Raises what stopped the server from starting."""
        self._thread.start()
        deadline = Deadline.after(START_TIMEOUT_S)
        while not self._server.started:
            # uvicorn has no event for this; the socket already queues what comes meanwhile.
            self._thread.join(0.005)
            if not self._thread.is_alive() or deadline.expired:
                raise Unavailable(f"the HTTP server did not start: {self._failure}", reason="http_start")
        log.info("ops http server listens", port=self.port)

    def close(self) -> None:
        """Nothing yet: probes and scrapers are answered while the rest of the process drains; `join` ends it."""

    def join(self, timeout_s: float) -> bool:
        """Takes no new connection; False when requests still run after the timeout. Raises what broke the server."""
        self._server.should_exit = True
        if self._thread.ident is not None:
            self._thread.join(timeout_s)
        if self._thread.is_alive():
            return False
        self._listener.close()
        if self._failure:
            raise self._failure
        return True

    def abort(self) -> None:
        """Drops the running requests."""
        self._server.force_exit = True
        self.join(GRACE_S)

    def failure(self) -> BaseException | None:
        """What broke the server, if anything did."""
        return self._failure

    def _run(self) -> None:
        try:
            self._server.run(sockets=[self._listener])
        except BaseException as error:
            self._failure = error

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
    tls: ServerTls | None = None,
    tokens: Tokens | None = None,
) -> OpsServer:
    """A server bound to host and port (0: any free one), not yet started. The callables run on its threads.

    `tokens` guard everything but the two probes; client certificates are not asked for, since probes have none.
    Raises Unavailable (bind) when the address cannot be had.
    """
    config = uvicorn.Config(
        ops_app(readiness, liveness, routes, tokens),
        log_config=None,
        log_level="warning",
        access_log=False,
        lifespan="off",
        ws="none",
        http="h11",
        loop="asyncio",
        server_header=False,
        limit_concurrency=CONNECTIONS_MAX,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=GRACE_S,
        h11_max_incomplete_event_size=HEADER_BYTES_MAX,
        ssl_certfile=str(tls.cert_file) if tls else None,
        ssl_keyfile=str(tls.key_file) if tls else None,
    )
    return OpsServer(uvicorn.Server(config), _listen(host, port))


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=128)
    except OSError as error:
        address = f"{host}:{port}"
        message = f"cannot listen on {address} for HTTP: {error}"
        raise Unavailable(message, reason="bind", address=address) from error
