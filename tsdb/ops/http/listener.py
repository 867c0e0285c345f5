"""HttpListener: accepts connections on an event loop, with a bound of connections and a reserve of file descriptors.

When the process has no free descriptor, the connections that have waited longest are closed for new ones. Some
descriptors are reserved, because probes must be answered even while gRPC and files use all others.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import ssl
from collections.abc import Callable
from functools import partial
from typing import Any

from tsdb.ops.descriptors import share_of
from tsdb.ops.http.connections import Abortable, Connections
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter
from tsdb.ops.threads import unattended

log = get_logger(__name__)

AT_ONCE = 32  # Connections accepted in one turn of the event loop.
RESERVE = 32  # Reserved descriptors, but at most an eighth of all.
RESERVE_SHARE = 8
YOUNG_S = 0.008  # A queued probe sends its request within this time. Connections that wait longer may be closed.
RETRY_S = 0.001  # A closed connection's descriptor is free after one turn of the loop.
BACK_OFF_S = 0.01  # Retry when no connection could be closed.
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_failures = counter("tsdb_http_accept_failures_total", "Connections that could not be accepted: no descriptor free.")


class HttpListener:
    """Created on the event loop's thread. `make`: creates the protocol of a connection, for the time after its
    handshake. tls: returns the TLS context of a connection."""

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        make: Callable[[Abortable], asyncio.Protocol],
        tls: Callable[[], ssl.SSLContext] | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._listener = listener
        self._connections = connections
        self._make = make
        self._tls = tls
        self._reserve: list[int] = []
        self._closed = False
        self._handshakes: set[asyncio.Task[Any]] = set()
        self._reserve_max = share_of(RESERVE, RESERVE_SHARE)
        connections.on_closed = self._refill_soon
        listener.setblocking(False)
        self._refill()
        self._resume()

    def close(self) -> None:
        """Stop accepting. Open connections continue."""
        self._closed = True
        self._loop.remove_reader(self._listener)
        while self._reserve:
            os.close(self._reserve.pop())
        for task in self._handshakes:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                peer, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                if error.errno not in _NO_DESCRIPTORS:
                    raise
                # Close and reuse it within this turn, because other threads would take a descriptor that stays free.
                if self._reserve:
                    os.close(self._reserve.pop())
                    continue
                self._out_of_descriptors(error)
                return
            while len(self._connections) >= self._connections.limits.connections_max:
                self._connections.free_capacity("connections")
            self._connect(peer)

    def _connect(self, peer: socket.socket) -> None:
        # asyncio does this for sockets whose protocol is named. Without it the end of an answer waits 40 ms.
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        limit_s = self._connections.limits.header_timeout_s if self._tls else None
        handshake = _Handshake()
        make = partial(self._make, handshake)
        context = self._tls() if self._tls else None
        connecting = self._loop.connect_accepted_socket(make, peer, ssl=context, ssl_handshake_timeout=limit_s)
        handshake.task = task = self._loop.create_task(connecting)
        self._connections.wait(handshake)
        self._handshakes.add(task)

        def connected(_task: object) -> None:
            # The peer left, the handshake failed, or the connection was closed for another one, maybe before the task
            # began.
            if task.cancelled() or task.exception() is not None:
                peer.close()
            self._handshakes.discard(task)
            self._connections.remove(handshake)

        task.add_done_callback(connected)

    def _out_of_descriptors(self, error: OSError) -> None:
        _failures.inc()
        self._loop.remove_reader(self._listener)
        freed = self._connections.free_capacity_of_old("descriptors", YOUNG_S)
        self._loop.call_later(RETRY_S if freed else BACK_OFF_S, unattended(self._resume, "http-accept"))
        log.warning(
            "no file descriptor for a new HTTP connection: the longest idle one is closed for it",
            error=str(error),
            connections=len(self._connections),
        )

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener, self._accept)

    def _refill_soon(self) -> None:
        self._loop.call_soon(self._refill)  # asyncio closes the descriptor after this callback.

    def _refill(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._reserve) < self._reserve_max and not self._closed:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


class _Handshake:
    """A connection that has no protocol yet."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None

    def abort(self) -> None:
        if self.task is not None:
            self.task.cancel()
