"""RequestBytes: the memory that all requests of a process may take together, gRPC and HTTP. Thread-safe."""

from __future__ import annotations

import threading

from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.ops.metrics import counter, gauge

RETRY_AFTER_S = 0.25
SMALL_SHARE = 64  # A request of at most 1/64 of the limit is small.
RESERVED_SHARE = 4  # A quarter of the limit is for small requests alone, so that a few large ones never lock them out.

_bytes = gauge("tsdb_request_bytes", "Bytes reserved for requests that were received and are not answered yet.")
_refused = counter("tsdb_request_bytes_refused_total", "Requests refused because other requests held the memory.")


class RequestBytes:
    """At most `bytes_max` bytes are reserved at once. setting: name of the setting, for messages; empty for a
    constant."""

    def __init__(self, bytes_max: int, setting: str = "") -> None:
        self._bytes_max = bytes_max
        self._setting = f" ({setting})" if setting else ""
        # Guards _taken; an innermost lock.
        self._lock = threading.Lock()
        self._taken = 0

    def take(self, size: int, held: int = 0) -> None:
        """Raise the reservation of a request from `held` to `size` bytes.

        Raises Overloaded (request_bytes); InvalidRequest (message_too_large) when `size` can never fit.
        """
        small = size <= self._bytes_max // SMALL_SHARE
        limit = self._bytes_max if small else self._bytes_max - self._bytes_max // RESERVED_SHARE
        if size > limit:
            raise InvalidRequest(
                f"the request would take {size} bytes of memory; limit is {limit}{self._setting}: split it",
                reason="message_too_large",
                got=size,
                limit=limit,
            )
        with self._lock:
            others = self._taken - held
            if others + size > limit:
                _refused.inc()
                raise Overloaded(
                    f"requests in hand take {others} bytes and this one would take {size}; "
                    f"limit is {limit}{self._setting}",
                    reason="request_bytes",
                    retry_after_s=RETRY_AFTER_S,
                    got=others + size,
                    limit=limit,
                )
            self._taken += size - held
        _bytes.inc(size - held)

    def give_back(self, size: int) -> None:
        """Free `size` reserved bytes."""
        with self._lock:
            self._taken -= size
        _bytes.dec(size)


class Reserved:
    """Memory reserved for one request; one thread at a time uses it. `size`: the bytes reserved now."""

    def __init__(self, held: RequestBytes) -> None:
        self._held = held
        self.size = 0

    def set(self, size: int) -> None:
        """Change the reservation to `size` bytes. Raises Overloaded, InvalidRequest."""
        if size > self.size:
            self._held.take(size, self.size)
        else:
            self._held.give_back(self.size - size)
        self.size = size

    def give_back(self) -> None:
        self.set(0)
