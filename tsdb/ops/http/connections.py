"""Connections of the HTTP server: bounds their number and their times, and chooses the one to close for a new one.

A connection waits (for a handshake, a header, the next request) or runs a request. A timer ends each wait; slowly
arriving bytes do not restart it. At the limit of connections, the one that has waited longest is closed for a new one,
so that a probe always gets in. Only the event loop's thread uses this module.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from tsdb.model import defaults
from tsdb.ops.metrics import counter, gauge

_open = gauge("tsdb_http_connections", "Open connections of the HTTP server.")
_closed = counter(
    "tsdb_http_connections_closed_total",
    "Connections that the HTTP server closed before their peer did: after a time limit, or to accept others.",
    "reason",
    (
        *("header_timeout", "idle_timeout", "request_timeout", "body_timeout"),
        *("connections", "descriptors", "large_headers"),
    ),
)

SMALL_HEADER_BYTES = 16 << 10
LARGE_HEADERS_MAX = 128  # Connections that may have a larger header at once: 16 MiB of text.


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """connections_max: open connections. requests_max: running requests, probes not counted.

    header_timeout_s: time from the start of a connection, or the first byte of a later request, to the end of the
    header. idle_timeout_s: time between requests. request_timeout_s: time from the header until the peer has the last
    byte of the answer. body_timeout_s: time from the header to the end of the body. url_bytes_max, header_bytes_max:
    bytes of the URL, and of all fields together.
    """

    connections_max: int = defaults.HTTP_CONNECTIONS_MAX
    requests_max: int = 64
    header_timeout_s: float = defaults.HTTP_HEADER_TIMEOUT_S
    idle_timeout_s: float = defaults.HTTP_IDLE_TIMEOUT_S
    request_timeout_s: float = defaults.HTTP_REQUEST_TIMEOUT_S
    body_timeout_s: float = defaults.HTTP_BODY_TIMEOUT_S
    url_bytes_max: int = defaults.HTTP_URL_BYTES_MAX
    header_bytes_max: int = defaults.HTTP_HEADER_BYTES_MAX


class Abortable(Protocol):
    """A connection that can be closed for another one."""

    def abort(self) -> None:
        """Close at once, without waiting for the peer."""


class Connections:
    """The open connections: waiting ones and running ones, each in the order in which they entered that state.

    on_closed: called when a connection is gone; asyncio frees its descriptor later in the same turn of the loop.
    """

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.on_closed: Callable[[], None] = lambda: None
        self._waiting: dict[Abortable, float] = {}  # Monotonic time at which the state began, by connection.
        self._running: dict[Abortable, float] = {}
        self._large: dict[Abortable, None] = {}  # Connections with a large header, in the order of its arrival.

    def __len__(self) -> int:
        return len(self._waiting) + len(self._running)

    def wait(self, connection: Abortable) -> None:
        """The connection is new, or its request has been answered."""
        self._large.pop(connection, None)
        known = self._running.pop(connection, None) or self._waiting.pop(connection, None)
        self._waiting[connection] = time.monotonic()
        if known is None:
            _open.set(len(self))

    def reserve_large_header(self, connection: Abortable) -> bool:
        """Count a connection as one with a large header, until its next wait. At the limit, the connection that has
        sent its header longest is closed. False when all such headers are complete."""
        if connection in self._large:
            return True
        if len(self._large) >= LARGE_HEADERS_MAX:
            oldest = next((one for one in self._large if one in self._waiting), None)
            if oldest is None:
                return False
            self.overdue(oldest, "large_headers")
            del self._large[oldest]
        self._large[connection] = None
        return True

    def run(self, connection: Abortable) -> None:
        """A request of the connection has begun."""
        self._waiting.pop(connection, None)
        # Moved behind those that have run longer.
        self._running.pop(connection, None)
        self._running[connection] = time.monotonic()

    def remove(self, connection: Abortable) -> None:
        """The connection is closed."""
        self._waiting.pop(connection, None)
        self._running.pop(connection, None)
        self._large.pop(connection, None)
        _open.set(len(self))
        self.on_closed()

    def free_capacity(self, reason: str) -> bool:
        """Close the connection that has waited longest, or else the one that has run longest. False without one."""
        oldest = next(iter(self._waiting or self._running), None)
        if oldest is None:
            return False
        # Removed at once, so that it is not chosen again while the loop closes it.
        self._waiting.pop(oldest, None)
        self._running.pop(oldest, None)
        _closed.labels(reason).inc()
        oldest.abort()
        return True

    def free_capacity_of_old(self, reason: str, age_s: float) -> int:
        """Close the older half of the connections that have waited longer than `age_s`. Returns the number closed."""
        before = time.monotonic() - age_s
        old = [connection for connection, since in self._waiting.items() if since < before]
        for _ in range((len(old) + 1) // 2):
            self.free_capacity(reason)
        return (len(old) + 1) // 2

    def overdue(self, connection: Abortable, reason: str) -> None:
        """Close a connection whose timer has expired."""
        _closed.labels(reason).inc()
        connection.abort()
