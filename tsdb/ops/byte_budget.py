"""ByteBudget: a bound on the bytes that are reserved at once, for work that runs or is in flight.

The caller decides the consequence of a full budget: a request is refused and sent again, a read waits, a captured
answer is dropped. RequestBytes is the budget of the requests of a process.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from weakref import WeakKeyDictionary, WeakSet

from prometheus_client import Gauge

from tsdb.model.errors import InvalidRequest, Overloaded
from tsdb.ops.metrics import counter, gauge

RETRY_AFTER_S = 0.25
SMALL_SHARE = 64  # A request of at most 1/64 of the limit is small.
RESERVED_SHARE = 4  # A quarter of the limit is for small requests alone, so that a few large ones never lock them out.

_request_bytes = gauge("tsdb_request_bytes", "Bytes reserved for requests that were received and are not answered yet.")
_refused = counter("tsdb_request_bytes_refused_total", "Requests refused because other requests held the memory.")

_followed: WeakKeyDictionary[Gauge, WeakSet[ByteBudget]] = WeakKeyDictionary()


class ByteBudget:
    """At most `bytes_max` bytes are reserved at once, and at most `share_max` of them for one owner. Thread-safe.

    admits_one: whether a reservation over the limit is made while no other one exists, so that a large piece of work
    gets its turn. gauge: shows the reserved bytes of all budgets that share it, counted when it is read.
    """

    def __init__(
        self, bytes_max: int, *, share_max: int | None = None, admits_one: bool = False, gauge: Gauge | None = None
    ) -> None:
        self.bytes_max = bytes_max
        self.share_max = bytes_max if share_max is None else share_max
        self._admits_one = admits_one
        # Guards all below; an innermost lock. `bytes` is read without it. A request takes and returns several
        # reservations, so the usual path takes the lock itself: a Condition adds two calls, and two more to notify.
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._waiters = 0
        self.bytes = 0
        """The bytes reserved now."""
        self._of_owner: Counter[str] = Counter()  # Bytes of reservations with an owner.
        self._closed = False
        if gauge is not None:
            _follow(gauge, self)

    @property
    def closed(self) -> bool:
        return self._closed

    def bytes_of(self, owner: str) -> int:
        """The bytes reserved for an owner now."""
        with self._lock:
            return self._of_owner[owner]

    def take(self, size: int, *, owner: str | None = None, limit: int | None = None, within_s: float = 0.0) -> bool:
        """Reserve `size` bytes, after a wait of at most within_s. False when the budget stays full, or is closed.

        limit: the limit of the reserved bytes with this reservation; by default bytes_max.
        """
        limit = self.bytes_max if limit is None else limit
        with self._lock:
            if owner is None and not self._closed and self.bytes + size <= limit:  # The usual case.
                self.bytes += size
                return True
            if not self._fits_locked(size, owner, limit):
                if within_s <= 0:
                    return False
                self._wait_locked(lambda: self._closed or self._fits_locked(size, owner, limit), within_s)
                if not self._fits_locked(size, owner, limit):
                    return False
            self.bytes += size
            if owner is not None:
                self._of_owner[owner] += size
        return True

    def give_back(self, size: int, owner: str | None = None) -> None:
        """Free `size` reserved bytes."""
        with self._lock:
            self.bytes -= size
            if owner is not None:
                self._of_owner[owner] -= size
                if not self._of_owner[owner]:
                    del self._of_owner[owner]
            if self._waiters:
                self._changed.notify_all()

    def close(self) -> None:
        """Refuse further reservations; the present ones stay until they are given back."""
        with self._lock:
            self._closed = True
            self._changed.notify_all()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is reserved. False: something still is after the timeout."""
        with self._lock:
            return self._wait_locked(lambda: self.bytes == 0, timeout_s)

    def _wait_locked(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        self._waiters += 1
        try:
            return self._changed.wait_for(condition, timeout_s)
        finally:
            self._waiters -= 1

    def _fits_locked(self, size: int, owner: str | None, limit: int) -> bool:
        if self._closed:
            return False
        if self._admits_one and not self.bytes:
            return True
        if owner is not None and self._of_owner[owner] + size > self.share_max:
            return False
        return self.bytes + size <= limit


def _follow(gauge: Gauge, budget: ByteBudget) -> None:
    budgets = _followed.setdefault(gauge, WeakSet())
    budgets.add(budget)
    gauge.set_function(lambda: sum(one.bytes for one in tuple(budgets)))


class RequestBytes:
    """The memory that all requests of a process may take together, gRPC and HTTP: at most `bytes_max` bytes.
    Thread-safe. setting: name of the setting, for messages; empty for a constant."""

    def __init__(self, bytes_max: int, setting: str = "") -> None:
        self._budget = ByteBudget(bytes_max, gauge=_request_bytes)
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
