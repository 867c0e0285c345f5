"""ByteBudget: a bound on the bytes that are reserved at once, for work that runs or is in flight.

The caller decides the consequence of a full budget: a request is refused and sent again, a read waits, a captured
answer is dropped.
"""

from __future__ import annotations

import threading
from collections import Counter

from prometheus_client import Gauge


class ByteBudget:
    """At most `bytes_max` bytes are reserved at once, and at most `share_max` of them for one owner. Thread-safe.

    admits_one: whether a reservation over the limit is made while no other one exists, so that a large piece of work
    gets its turn. gauge: follows the reserved bytes; other budgets may share it.
    """

    def __init__(
        self, bytes_max: int, *, share_max: int | None = None, admits_one: bool = False, gauge: Gauge | None = None
    ) -> None:
        self.bytes_max = bytes_max
        self.share_max = bytes_max if share_max is None else share_max
        self._admits_one = admits_one
        self._gauge = gauge
        self._changed = threading.Condition()  # Guards all below; an innermost lock. `bytes` is read without it.
        self.bytes = 0
        """The bytes reserved now."""
        self._of_owner: Counter[str] = Counter()  # Bytes of reservations with an owner.
        self._closed = False

    @property
    def closed(self) -> bool:
        return self._closed

    def bytes_of(self, owner: str) -> int:
        """The bytes reserved for an owner now."""
        with self._changed:
            return self._of_owner[owner]

    def take(self, size: int, *, owner: str | None = None, limit: int | None = None, within_s: float = 0.0) -> bool:
        """Reserve `size` bytes, after a wait of at most within_s. False when the budget stays full, or is closed.

        limit: the limit of the reserved bytes with this reservation; by default bytes_max.
        """
        limit = self.bytes_max if limit is None else limit
        with self._changed:
            if not self._fits_locked(size, owner, limit):
                if within_s <= 0:
                    return False
                self._changed.wait_for(lambda: self._closed or self._fits_locked(size, owner, limit), within_s)
                if not self._fits_locked(size, owner, limit):
                    return False
            self._add_locked(size, owner)
        return True

    def give_back(self, size: int, owner: str | None = None) -> None:
        """Free `size` reserved bytes."""
        with self._changed:
            self._add_locked(-size, owner)
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse further reservations; the present ones stay until they are given back."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def wait_idle(self, timeout_s: float) -> bool:
        """Wait until nothing is reserved. False: something still is after the timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: self.bytes == 0, timeout_s)

    def _fits_locked(self, size: int, owner: str | None, limit: int) -> bool:
        if self._closed:
            return False
        if self._admits_one and not self.bytes:
            return True
        if owner is not None and self._of_owner[owner] + size > self.share_max:
            return False
        return self.bytes + size <= limit

    def _add_locked(self, size: int, owner: str | None) -> None:
        self.bytes += size
        if owner is not None:
            self._of_owner[owner] += size
            if not self._of_owner[owner]:
                del self._of_owner[owner]
        if self._gauge is not None:
            self._gauge.inc(size)
