"""RequestBytes: the memory that all requests of a process may take together, gRPC and HTTP. Thread-safe."""

from __future__ import annotations

from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.ops.byte_budget import ByteBudget
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
        self._budget = ByteBudget(bytes_max, gauge=_bytes)
        self._setting = f" ({setting})" if setting else ""

    def take(self, size: int, held: int = 0) -> None:
        """Raise the reservation of a request from `held` to `size` bytes.

        Raises Overloaded (request_bytes); InvalidRequest (message_too_large) when `size` can never fit.
        """
        limit = self._budget.bytes_max
        if size > limit // SMALL_SHARE:
            limit -= limit // RESERVED_SHARE
        if size > limit:
            raise InvalidRequest(
                f"the request would take {size} bytes of memory; limit is {limit}{self._setting}: split it",
                reason="message_too_large",
                got=size,
                limit=limit,
            )
        if not self._budget.take(size - held, limit=limit):
            others = self._budget.bytes - held
            _refused.inc()
            raise Overloaded(
                f"requests in hand take {others} bytes and this one would take {size}; limit is {limit}{self._setting}",
                reason="request_bytes",
                retry_after_s=RETRY_AFTER_S,
                got=others + size,
                limit=limit,
            )

    def give_back(self, size: int) -> None:
        """Free `size` reserved bytes."""
        self._budget.give_back(size)


class Reserved:
    """Memory reserved for one request; one thread at a time uses it. `size`: the bytes reserved now."""

    def __init__(self, held: RequestBytes) -> None:
        self._held = held
        self.size = 0

    def set(self, size: int) -> None:
        """Change the reservation to `size` bytes. Raises Overloaded, InvalidRequest."""
        if size > self.size:
            self._held.take(size, self.size)
        elif size < self.size:
            self._held.give_back(self.size - size)
        self.size = size

    def give_back(self) -> None:
        self.set(0)
