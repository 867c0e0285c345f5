"""Token buckets: the requests and samples that each holder may still bring now.

A bucket fills at its holder's rate, up to the burst. A request needs one request and any sample in the buckets of its
holder. It takes all its samples, so that a bucket may owe some, and the next request waits until nothing is owed: a
request larger than the burst passes too, and over time the rate is exact. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.limits import REQUESTS, SAMPLES, RateLimits
from tsdb.model.clock import Clock
from tsdb.ops.metrics import gauge

HOLDERS_MAX = 100_000
EVICTED_SHARE = 16
WAIT_S_LEAST = 0.05
WAIT_S_MAX = 60.0
FIRST_SLOTS = 256
SOURCE, TOKEN = "source", "token"

_buckets = gauge(
    "tsdb_ingest_rate_buckets",
    "Sources or tokens whose requests and samples are counted for a limit.",
    "kind",
    (SOURCE, TOKEN),
)


@dataclass(frozen=True, slots=True)
class Taken:
    """wait_s: float64 (holders, 2), seconds until a request would pass this bucket; 0 when this one has passed it."""

    wait_s: NDArray[np.float64]

    @property
    def over(self) -> NDArray[np.bool_]:
        """bool (holders,): holders over a limit."""
        found: NDArray[np.bool_] = np.any(self.wait_s > 0, axis=1)
        return found


class RateBuckets:
    """Rate buckets of at most `holders_max` holders, beside the holders of one request. kind: SOURCE or TOKEN.

    When there are more, those are forgotten that will be full again soonest.

    """

    def __init__(self, kind: str, clock: Clock, holders_max: int = HOLDERS_MAX) -> None:
        self._size = _buckets.labels(kind)
        self._clock = clock
        self._holders_max = holders_max
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._slot_of: dict[int, int] = {}
        self._free: list[int] = []
        self._levels = np.zeros((0, 2))
        self._filled_at = np.zeros(0)
        self._full_at = np.zeros(0)  # Time from which nothing of a bucket's state is left; infinite for a free slot.
        self._holder_of = np.zeros(0, np.uint64)

    def __len__(self) -> int:
        with self._lock:
            return len(self._slot_of)

    def take(
        self, holders: Sequence[int], samples: NDArray[np.float64], limits: RateLimits, *, whole: bool = False
    ) -> Taken:
        """Take one request and samples[i] samples from each holder that has both. With `whole`, take all or nothing.

        holders: distinct, at most holders_max.

        """
        rates = limits.rates(holders)
        with self._lock:
            slots = self._slots_locked(holders)
            capacity = _capacity(rates, limits.burst_s)
            levels = self._refilled_locked(slots, rates, capacity)
            wait_s = _waits(levels, rates)
            passed = np.all(wait_s == 0, axis=1)
            if whole and not passed.all():
                passed = np.zeros_like(passed)
            levels[passed, REQUESTS] -= 1
            levels[passed, SAMPLES] -= samples[passed]
            self._put_locked(slots, levels, rates, capacity)
        return Taken(wait_s)

    def charge(self, holder: int, samples: int, limits: RateLimits) -> None:
        """Samples of a request that `take` let pass before they were counted."""
        rates = limits.rates([holder])
        with self._lock:
            slots = self._slots_locked([holder])
            capacity = _capacity(rates, limits.burst_s)
            levels = self._refilled_locked(slots, rates, capacity)
            levels[:, SAMPLES] -= samples
            self._put_locked(slots, levels, rates, capacity)

    def _refilled_locked(
        self, slots: NDArray[np.int64], rates: NDArray[np.float64], capacity: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        passed_s = np.maximum(self._clock.monotonic() - self._filled_at[slots], 0)
        return np.minimum(self._levels[slots] + passed_s[:, None] * rates, capacity)

    def _put_locked(
        self,
        slots: NDArray[np.int64],
        levels: NDArray[np.float64],
        rates: NDArray[np.float64],
        capacity: NDArray[np.float64],
    ) -> None:
        now = self._clock.monotonic()
        self._levels[slots] = levels
        self._filled_at[slots] = now
        self._full_at[slots] = now + ((capacity - levels) / np.maximum(rates, 1e-9)).max(axis=1)

    def _slots_locked(self, holders: Sequence[int]) -> NDArray[np.int64]:
        """Slots of the holders. The bucket of a new holder is full."""
        missing = [holder for holder in holders if holder not in self._slot_of]
        if missing:
            self._free_capacity_locked(len(missing), [self._slot_of[one] for one in holders if one in self._slot_of])
            now = self._clock.monotonic()
            for holder in missing:
                slot = self._free.pop()
                self._slot_of[holder] = slot
                self._holder_of[slot] = holder
                self._levels[slot] = np.inf
                self._filled_at[slot] = self._full_at[slot] = now
            self._size.set(len(self._slot_of))
        return np.fromiter((self._slot_of[holder] for holder in holders), np.int64, len(holders))

    def _free_capacity_locked(self, count: int, in_use: list[int]) -> None:
        over = len(self._slot_of) + count - self._holders_max
        if over > 0:
            self._evict_locked(max(over, self._holders_max // EVICTED_SHARE), in_use)
        if len(self._free) >= count:
            return
        size, held = max(FIRST_SLOTS, len(self._slot_of) + max(count, len(self._slot_of))), len(self._full_at)
        self._free += range(held, size)
        self._levels = np.concatenate((self._levels, np.zeros((size - held, 2))))
        self._filled_at = np.concatenate((self._filled_at, np.zeros(size - held)))
        self._full_at = np.concatenate((self._full_at, np.full(size - held, np.inf)))
        self._holder_of = np.concatenate((self._holder_of, np.zeros(size - held, np.uint64)))

    def _evict_locked(self, count: int, in_use: list[int]) -> None:
        full_at = self._full_at.copy()
        full_at[in_use] = np.inf
        count = min(count, len(full_at))
        victims = np.argpartition(full_at, count - 1)[:count]
        victims = victims[np.isfinite(full_at[victims])]
        for slot, holder in zip(victims.tolist(), self._holder_of[victims].tolist(), strict=True):
            del self._slot_of[holder]
            self._free.append(slot)
        self._full_at[victims] = np.inf


def unit_over(wait_s: NDArray[np.float64], rates: NDArray[np.float64]) -> int:
    """REQUESTS or SAMPLES, the one that refuses a holder. A rate of 0 comes first: no wait mends it."""
    return int((rates == 0).argmax() if (rates == 0).any() else wait_s.argmax())


def _capacity(rates: NDArray[np.float64], burst_s: float) -> NDArray[np.float64]:
    """Most that a bucket holds. A request of a holder with any rate of requests fits."""
    capacity: NDArray[np.float64] = rates * burst_s
    capacity[:, REQUESTS] = np.where(rates[:, REQUESTS] > 0, np.maximum(capacity[:, REQUESTS], 1), 0)
    return capacity


def _waits(levels: NDArray[np.float64], rates: NDArray[np.float64]) -> NDArray[np.float64]:
    short = np.column_stack((levels[:, REQUESTS] < 1, levels[:, SAMPLES] <= 0))
    missing = np.column_stack((1 - levels[:, REQUESTS], -levels[:, SAMPLES]))
    seconds = np.where(rates > 0, missing / np.maximum(rates, 1e-9), WAIT_S_MAX)
    found: NDArray[np.float64] = np.where(short, np.clip(seconds, WAIT_S_LEAST, WAIT_S_MAX), 0.0)
    return found
