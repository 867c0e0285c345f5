"""Connections of the HTTP server: how many there are, how long each may wait, and which one makes room for a new one.

A connection waits (for a handshake, a header, the next request) or runs a request. Waiting ends by a timer, whatever
bytes trickle in meanwhile. When a new connection finds no room, the one that has been waiting longest is closed, so
that a probe always gets in. All of it belongs to the event loop's thread.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from uvicorn.protocols.http.h11_impl import H11Protocol

from tsdb.ops.metrics import counter, gauge

_open = gauge("tsdb_http_connections", "Open connections of the HTTP server.")
_closed = counter(
    "tsdb_http_connections_closed_total",
    "Connections that the HTTP server closed before their peer did: after a time limit, or to make room for others.",
    "reason",
    ("header_timeout", "idle_timeout", "request_timeout", "connections", "descriptors"),
)


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """connections_max: at once. requests_max: at once, probes not counted.

    header_timeout_s: from a connection, or the first byte of a request, to the end of its header. idle_timeout_s:
    between requests. request_timeout_s: from the header to the last byte of the answer taken by the peer.
    """

    connections_max: int = 2048
    requests_max: int = 64
    header_timeout_s: float = 10.0
    idle_timeout_s: float = 75.0
    request_timeout_s: float = 60.0


class Abortable(Protocol):
    """A connection, as one that makes room."""

    def abort(self) -> None:
        """Close at once."""


class Connections:
    """Those that are open, waiting and running, each in the order in which they became so.

    on_closed: called after one has gone, when its descriptor is free.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.on_closed: Callable[[], None] = lambda: None
        self._waiting: dict[Abortable, float] = {}  # With the monotonic time since when.
        self._running: dict[Abortable, float] = {}

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def wait(self, connection: Abortable) -> None:
        """It is new, or its request has been answered."""
        self._move(connection, self._waiting)

    def run(self, connection: Abortable) -> None:
        """Its request has begun."""
        self._move(connection, self._running)

    def remove(self, connection: Abortable) -> None:
        """It has gone."""
        self._waiting.pop(connection, None)
        self._running.pop(connection, None)
        _open.set(len(self))
        self.on_closed()

    def make_room(self, reason: str) -> bool:
        """Close the one that has waited longest, else the one that has run longest; False when there is none."""
        oldest = next(iter(self._waiting or self._running), None)
        if oldest is None:
            return False
        # Gone from here at once: it must not be chosen again while the loop closes it.
        self._waiting.pop(oldest, None)
        self._running.pop(oldest, None)
        _closed.labels(reason).inc()
        oldest.abort()
        return True

    def make_room_of_old(self, reason: str, age_s: float) -> int:
        """Close the older half of those that have waited for longer; returns how many."""
        before = time.monotonic() - age_s
        old = [connection for connection, since in self._waiting.items() if since < before]
        for _ in range((len(old) + 1) // 2):
            self.make_room(reason)
        return (len(old) + 1) // 2

    def overdue(self, connection: Abortable, reason: str) -> None:
        """Close one whose time is over."""
        _closed.labels(reason).inc()
        connection.abort()

    def _move(self, connection: Abortable, to: dict[Abortable, float]) -> None:
        self._waiting.pop(connection, None)
        self._running.pop(connection, None)
        to[connection] = time.monotonic()
        _open.set(len(self))


class Connection(H11Protocol):
    """uvicorn's connection with a timer: whatever it waits for ends in time."""

    def __init__(self, connections: Connections, handshake: Abortable, **uvicorn: Any) -> None:
        super().__init__(**uvicorn)
        self._table = connections
        self._handshake = handshake
        self._timer: asyncio.TimerHandle | None = None
        self._between_requests = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """The peer is there: it owes a header."""
        super().connection_made(transport)
        self._table.remove(self._handshake)
        self._table.wait(self)
        self._expect("header_timeout", self._table.limits.header_timeout_s)

    def connection_lost(self, exc: Exception | None) -> None:
        """The descriptor is closed after this returns."""
        super().connection_lost(exc)
        self._cancel_timer()
        self._table.remove(self)

    def data_received(self, data: bytes) -> None:
        """Bytes of a header start its timer once; more of them do not start it again."""
        if self._between_requests:
            self._between_requests = False
            self._expect("header_timeout", self._table.limits.header_timeout_s)
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._begin()

    def on_response_complete(self) -> None:
        """The answer is handed to the transport; the peer may still have to take it."""
        before = self.cycle
        super().on_response_complete()
        if self.cycle is not before:  # A request that was sent ahead has begun.
            self._begin()
        elif not self.transport.is_closing():
            self._between_requests = True
            self._table.wait(self)
            self._expect("idle_timeout", self._table.limits.idle_timeout_s)

    def abort(self) -> None:
        """Close without waiting for a peer that does not read."""
        self.transport.abort()

    def _begin(self) -> None:
        self._table.run(self)
        self._expect("request_timeout", self._table.limits.request_timeout_s)

    def _expect(self, reason: str, within_s: float) -> None:
        self._cancel_timer()
        self._timer = self.loop.call_later(within_s, self._table.overdue, self, reason)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
