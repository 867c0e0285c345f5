"""Active series: counts them for each source and for the gateway, and checks new series against the limits.

A series is active from its announcement, first or renewed, to the end of the next window. That is one to two windows,
so at least as long as the gateway treats the series as known. Known series are never refused. Thread-safe; at most 24
bytes for each series.

A generation is a set of 64-bit keys. The upper half is a hash of the source, the lower half one of the series.

Each series takes 8 bytes and no label text. Two series of one source with equal lower halves count once: about one in
100,000.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ingest.limits import SeriesLimits
from tsdb.model.clock import Clock
from tsdb.ops.metrics import gauge

_active = gauge("tsdb_ingest_active_series", "Series announced by this gateway within the last one to two windows.")

Keys = NDArray[np.uint64]
RECENT_MIN = 8192
# The recent keys are merged when they are an eighth of all keys, so that a key is moved only a few times.
RECENT_PART = 8
SOURCE_SHIFT = np.uint64(32)
_SERIES_MASK = np.uint64(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class LimitCheck:
    """Result of a check. over_source, over_gateway: bool (n,) by key; a key is never in both.

    source_active, source_new: series of the key's source, active before and new in the request. active, new: counts of
    the whole gateway.
    """

    over_source: NDArray[np.bool_]
    over_gateway: NDArray[np.bool_]
    source_active: NDArray[np.int64]
    source_new: NDArray[np.int64]
    active: int
    new: int

    @property
    def refused(self) -> NDArray[np.bool_]:
        """Keys over either limit."""
        return self.over_source | self.over_gateway


class ActiveSeries:
    """Keys of two windows. `_fresh` and `_kept` are of this window, `_previous` of the one before.

    `_fresh` and `_previous` share no key. `_kept` has the keys of `_previous` that were announced again in this window.

    """

    def __init__(self, window_ms: int, clock: Clock) -> None:
        self._window_s = window_ms / 1000
        self._clock = clock
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._began_at = clock.monotonic()
        self._previous, self._fresh, self._kept = SeriesGeneration(), SeriesGeneration(), SeriesGeneration()

    def __len__(self) -> int:
        with self._lock:
            self._turn_locked()
            return self._count_locked()

    @property
    def nbytes(self) -> int:
        """Memory of the keys, in bytes."""
        with self._lock:
            return self._previous.nbytes + self._fresh.nbytes + self._kept.nbytes

    def admit(self, keys: Keys, limits: SeriesLimits, *, whole: bool) -> LimitCheck:
        """Make keys active, up to the limits. With `whole`, all keys are admitted or none. Keys may repeat."""
        distinct, place = np.unique(keys, return_inverse=True)
        with self._lock:
            self._turn_locked()
            found = self._admission_locked(distinct, limits)
            if not (whole and found.refused.any()):
                self._add_locked(distinct[~found.refused])
        return LimitCheck(
            found.over_source[place],
            found.over_gateway[place],
            found.source_active[place],
            found.source_new[place],
            found.active,
            found.new,
        )

    def renew(self, keys: Keys) -> None:
        """Keep known series active after their renewal, whatever the limits. Keys may repeat."""
        with self._lock:
            self._turn_locked()
            self._add_locked(np.unique(keys))

    def _admission_locked(self, keys: Keys, limits: SeriesLimits) -> LimitCheck:
        """keys: distinct and ascending, so that the keys of a source are adjacent."""
        new = ~(self._previous.has(keys) | self._fresh.has(keys))
        sources, of_key = np.unique(keys >> SOURCE_SHIFT, return_inverse=True)
        active = self._previous.count_of(sources) + self._fresh.count_of(sources)
        free = limits.source_maxima(sources) - active
        # The rank of a key is the number of new keys of its source, from the first one to this key.
        before: NDArray[np.int64] = np.concatenate((np.zeros(1, np.int64), np.cumsum(new, dtype=np.int64)))
        first_of_source = np.searchsorted(of_key, np.arange(len(sources)))
        rank = before[1:] - before[first_of_source[of_key]]
        over_source = new & (rank > free[of_key])
        held = self._count_locked()
        over_gateway = new & ~over_source & (np.cumsum(new & ~over_source) > limits.gateway_series_max - held)
        of_source = np.bincount(of_key, new, len(sources)).astype(np.int64)
        return LimitCheck(over_source, over_gateway, active[of_key], of_source[of_key], held, int(new.sum()))

    def _add_locked(self, keys: Keys) -> None:
        before = self._previous.has(keys)
        again, fresh = keys[before], keys[~before]
        self._kept.add(again[~self._kept.has(again)])
        self._fresh.add(fresh[~self._fresh.has(fresh)])
        _active.set(self._count_locked())

    def _count_locked(self) -> int:
        return len(self._previous) + len(self._fresh)

    def _turn_locked(self) -> None:
        """Begin a new window when the current one is over. Keys announced in it stay active through the next window."""
        windows = int((self._clock.monotonic() - self._began_at) // self._window_s)
        if not windows:
            return
        announced = np.sort(np.concatenate((self._fresh.all(), self._kept.all())))
        self._previous = SeriesGeneration(announced) if windows == 1 else SeriesGeneration()
        self._fresh, self._kept = SeriesGeneration(), SeriesGeneration()
        self._began_at += windows * self._window_s
        _active.set(self._count_locked())


def keys_of(source: NDArray[np.uint32], series_id: NDArray[np.uint64]) -> Keys:
    """One key for each series, in the given order."""
    return source.astype(np.uint64) << SOURCE_SHIFT | series_id & _SERIES_MASK


class SeriesGeneration:
    """A large sorted array, and a small one for added keys. A look-up searches both."""

    def __init__(self, keys: Keys | None = None) -> None:
        self._main = np.empty(0, np.uint64) if keys is None else keys
        self._recent = np.empty(0, np.uint64)

    def __len__(self) -> int:
        return len(self._main) + len(self._recent)

    @property
    def nbytes(self) -> int:
        """Memory of the keys, in bytes."""
        return self._main.nbytes + self._recent.nbytes

    def has(self, keys: Keys) -> NDArray[np.bool_]:
        """Whether each key is held."""
        return _is_in(self._main, keys) | _is_in(self._recent, keys)

    def add(self, keys: Keys) -> None:
        """Add distinct keys that are not in the set yet."""
        self._recent = _merged(self._recent, keys)
        if len(self._recent) > max(RECENT_MIN, len(self._main) // RECENT_PART):
            self._main, self._recent = self.all(), np.empty(0, np.uint64)

    def all(self) -> Keys:
        """All keys in ascending order."""
        return _merged(self._main, self._recent)

    def count_of(self, sources: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Number of keys of each source."""
        first, end = sources << SOURCE_SHIFT, sources << SOURCE_SHIFT | _SERIES_MASK
        counts = np.zeros(len(sources), np.int64)
        for held in (self._main, self._recent):
            counts += np.searchsorted(held, end, side="right") - np.searchsorted(held, first)
        return counts


def _is_in(held: Keys, keys: Keys) -> NDArray[np.bool_]:
    if not len(held):
        return np.zeros(len(keys), np.bool_)
    places = np.minimum(np.searchsorted(held, keys), len(held) - 1)
    found: NDArray[np.bool_] = held[places] == keys
    return found


def _merged(left: Keys, right: Keys) -> Keys:
    # A stable sort detects the two sorted runs and merges them.
    return np.sort(np.concatenate((left, right)), kind="stable")
