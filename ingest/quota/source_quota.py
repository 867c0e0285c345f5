"""Quota of sources: checks the samples of a request against the rates of their sources.

A source over a rate is refused with all its samples of the request; the other sources of the request are not. Without
limits nothing is counted.

The source of a row is that of its pack, because a pack is part of one source.

The series table has no sources. The labels of a pack that is not known are placed once more; all others are look-ups.
Used only while sources have limits. Thread-safe.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from ingest.limits import REQUESTS, UNLIMITED, Rate, RateLimits
from ingest.quota.buckets import SOURCE, RateBuckets, unit_over
from tsdb.model.clock import Clock
from tsdb.ops.logs import get_logger

WARN_EVERY_S = 60.0
REASONS = ("source_requests_limit", "source_samples_limit")  # Reasons by column of the rates.
logger = get_logger(__name__)

PACKS_MAX = 500_000  # About 100 B each.
UNKNOWN = -1
Place = Callable[[NDArray[np.int64]], NDArray[np.uint32]]
"""Rows of the request, all valid -> the hash of the source of each."""


@dataclass(frozen=True, slots=True)
class OverRate:
    """A source over a rate. rows: int64, its rows of the request.

    wait_s: time until it may send again; None for a rate of 0, where a wait does not help.

    rate: the limit, a second; own: whether it is of this source alone.

    """

    rows: NDArray[np.int64]
    reason: str
    wait_s: float | None
    rate: float
    own: bool

    def text(self, source: str) -> str:
        """Message for the sender. source: the text of the source's labels."""
        unit = REASONS.index(self.reason)
        what, setting = (("requests", "source_requests_per_s"), ("samples", "source_samples_per_s"))[unit]
        place = f"{what}_per_s of its [[source]]" if self.own else setting
        if self.wait_s is None:
            return f"source {source} may send no {what} ({place} is 0): raise it in limits_file, or stop the source"
        return (
            f"source {source} sends more than {self.rate:g} {what} a second ({place}):"
            f" send again in {self.wait_s:.2g} s, or raise it in limits_file"
        )


class SourceQuota:
    """Thread-safe; the counts of one gateway."""

    def __init__(self, clock: Clock) -> None:
        self._buckets = RateBuckets(SOURCE, clock)
        self._clock = clock
        self._warned_at: float | None = None

    def __len__(self) -> int:
        """Sources that are counted."""
        return len(self._buckets)

    def check(
        self,
        sources: NDArray[np.uint32],
        samples: NDArray[np.int64],
        good: NDArray[np.bool_],
        limits: RateLimits,
        *,
        whole: bool,
    ) -> Sequence[OverRate]:
        """Count the good rows of each source. sources, samples, good: arrays with one entry for each row.

        whole: whether one source over its rate refuses the whole request. Nothing is counted then.
        """
        if not limits.limited:
            return ()
        rows = np.flatnonzero(good)
        holders, of_row = np.unique(sources[rows], return_inverse=True)
        rates = limits.rates(holders.tolist())
        limited = np.flatnonzero((rates < UNLIMITED).any(axis=1))
        if not len(limited):
            return ()
        counts = np.bincount(of_row, samples[rows], len(holders))[limited].astype(np.float64)
        taken = self._buckets.take(holders[limited].tolist(), counts, limits, whole=whole)
        return [
            _over_rate(rows[of_row == place], wait_s, rates[place], int(holders[place]), limits)
            for place, wait_s in zip(limited[taken.over].tolist(), taken.wait_s[taken.over], strict=True)
        ]

    def warn(self, reason: str, text: str) -> None:
        """Log once a minute: a source over its rate repeats its requests."""
        now = self._clock.monotonic()
        if self._warned_at is None or now - self._warned_at >= WARN_EVERY_S:
            self._warned_at = now
            logger.warning("source over its rate", reason=reason, example=text)


def _over_rate(
    rows: NDArray[np.int64], wait_s: NDArray[np.float64], rates: NDArray[np.float64], source: int, limits: RateLimits
) -> OverRate:
    unit = unit_over(wait_s, rates)
    own = limits.own.get(source, Rate())
    is_own = (own.requests_per_s if unit == REQUESTS else own.samples_per_s) is not None
    wait = float(wait_s[unit]) if rates[unit] else None
    return OverRate(rows, REASONS[unit], wait, float(rates[unit]), is_own)


class PackSources:
    """Source hashes of at most `packs_max` packs, beside the packs of one request. At the limit all are forgotten."""

    def __init__(self, packs_max: int = PACKS_MAX) -> None:
        self._packs_max = packs_max
        self._lock = threading.Lock()  # Guards _source_of; an innermost lock.
        self._source_of: dict[int, int] = {}

    def __len__(self) -> int:
        with self._lock:
            return len(self._source_of)

    def of(self, pack_ids: NDArray[np.uint64], good: NDArray[np.bool_], place: Place) -> NDArray[np.uint32]:
        """Source of each good row, uint32 (rows,); 0 for other rows."""
        rows = np.flatnonzero(good)
        packs, first, of_row = np.unique(pack_ids[rows], return_index=True, return_inverse=True)
        with self._lock:
            known = map(self._source_of.get, packs.tolist(), repeat(UNKNOWN))
            found = np.fromiter(known, np.int64, len(packs))
        missing = np.flatnonzero(found == UNKNOWN)
        if len(missing):
            found[missing] = place(rows[first[missing]])
            self._add(packs[missing], found[missing])
        sources = np.zeros(len(pack_ids), np.uint32)
        sources[rows] = found[of_row]
        return sources

    def _add(self, packs: NDArray[np.uint64], sources: NDArray[np.int64]) -> None:
        with self._lock:
            if len(self._source_of) + len(packs) > self._packs_max:
                self._source_of.clear()
            self._source_of.update(zip(packs.tolist(), sources.tolist(), strict=True))
