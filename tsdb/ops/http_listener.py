"""HttpListener: accepts connections on an event loop, within a number of connections and of file descriptors.

When the process has no descriptor left, the connection that has waited longest is closed for the new one. Some
descriptors are kept in reserve, for probes must be answered also when others (gRPC, files) hold all the rest.
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
from tsdb.ops.http_connections import Abortable, Connections
from tsdb.ops.logs import get_logger
from tsdb.ops.metrics import counter

log = get_logger(__name__)

AT_ONCE = 32  # Accepted before others of the loop have their turn.
RESERVE = 32  # Descriptors, and at most an eighth of all.
RESERVE_SHARE = 8
YOUNG_S = 0.008  # A probe that was queued has sent its request by then; what has waited longer makes room.
RETRY_S = 0.001  # A descriptor given back is free after the loop's turn.
BACK_OFF_S = 0.01  # When nothing can be given back yet.
_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

_failures = counter("tsdb_http_accept_failures_total", "Connections that could not be accepted: no descriptor free.")


class HttpListener:
    """Made on the event loop's thread. `make`: the protocol of a connection, which stands for its handshake so far."""

    def __init__(
        self,
        listener: socket.socket,
        connections: Connections,
        make: Callable[[Abortable], asyncio.Protocol],
        tls: ssl.SSLContext | None,
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
        """Accept no more. Connections go on."""
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
                if self._reserve:  # Closed and used within this turn: a free one would be taken by others.
                    os.close(self._reserve.pop())
                    continue
                self._out_of_descriptors(error)
                return
            while len(self._connections) >= self._connections.limits.connections_max:
                self._connections.make_room("connections")
            self._connect(peer)

    def _connect(self, peer: socket.socket) -> None:
        limit_s = self._connections.limits.header_timeout_s if self._tls else None
        handshake = _Handshake()
        make = partial(self._make, handshake)
        connecting = self._loop.connect_accepted_socket(make, peer, ssl=self._tls, ssl_handshake_timeout=limit_s)
        handshake.task = task = self._loop.create_task(connecting)
        self._connections.wait(handshake)
        self._handshakes.add(task)

        def connected(_task: object) -> None:
            # One that went away, failed its handshake, or made room, maybe before the task began.
            if task.cancelled() or task.exception() is not None:
                peer.close()
            self._handshakes.discard(task)
            self._connections.remove(handshake)

        task.add_done_callback(connected)

    def _out_of_descriptors(self, error: OSError) -> None:
        _failures.inc()
        self._loop.remove_reader(self._listener)
        freed = self._connections.make_room_of_old("descriptors", YOUNG_S)
        self._loop.call_later(RETRY_S if freed else BACK_OFF_S, self._resume)
        log.warning(
            "no file descriptor for a new HTTP connection: the longest idle one is closed for it",
            error=str(error),
            connections=len(self._connections),
        )

    def _resume(self) -> None:
        if not self._closed:
            self._loop.add_reader(self._listener, self._accept)

    def _refill_soon(self) -> None:
        self._loop.call_soon(self._refill)  # The descriptor is free once asyncio has closed it.

    def _refill(self) -> None:
        with contextlib.suppress(OSError):
            while len(self._reserve) < self._reserve_max and not self._closed:
                self._reserve.append(os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC))


class _Handshake:
    """A connection that has no protocol yet."""

    def __init__(self) -> None:
        self.task: asyncio.Task[Any] | None = None

    def abort(self) -> None:
        """Close at once."""
        if self.task is not None:
            self.task.cancel()
