"""Bucket memory: which boundaries of a converted histogram may still have a value, for the stale markers at their end.

A native histogram becomes a classic series a boundary, and its next sample may lack some of them: after a restart of
its target, or when it is a gauge. Without a stale marker the old series answer for the whole lookback, beside counts
that have nothing to do with them.

A process that has just started, or shares a histogram with other gateways, learns its boundaries from the topic
`series`: each is announced there before its first sample, and while it is written.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Protocol

import xxhash

HISTOGRAMS_MAX = 10_000
# A boundary that is gone gets a marker with each sample for this long, twice the lookback: another gateway may have
# written a value of it meanwhile, and a request with a marker may have failed.
MARK_FOR_MS = 600_000
_SEPARATOR = b"\xff"


class MustWait(Exception):
    """A request needs a wait on a thread that must not wait. Another thread runs the request from its beginning."""


class AnnouncedBoundaries(Protocol):
    """The boundaries on the topic `series`."""

    @property
    def ready(self) -> bool:
        """Whether `of` answers without a wait."""

    def of(self, histogram: int) -> Collection[bytes]:
        """Texts of `le` below +Inf, by `histogram_of`. The set only grows. Raises Unavailable while the texts are
        read."""


@dataclass(slots=True)
class _Histogram:
    """live: boundary -> time of the last sample that had it, or that learned of it."""

    key: int
    announced: int = 0  # Boundaries that were announced at the last look.
    newest_ms: int = -(2**63)
    live: dict[bytes, int] = field(default_factory=dict)


class BucketMemory:
    """Thread-safe. announced: None knows only what this process has received. The longest unused go first."""

    def __init__(self, announced: AnnouncedBoundaries | None = None, histograms_max: int = HISTOGRAMS_MAX) -> None:
        self._announced = announced
        self._histograms_max = histograms_max
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._known: OrderedDict[bytes, _Histogram] = OrderedDict()

    def check_wait(self, *, may_wait: bool) -> None:
        """Raises MustWait when `gone` may wait for announced boundaries and the caller may not."""
        if not (may_wait or self._announced is None or self._announced.ready):
            raise MustWait

    def bounds_of(self, bucket: bytes) -> list[bytes]:
        """Texts of `le` below +Inf of a histogram that this process has received, in no order; empty for another one.
        bucket: as in `gone`."""
        with self._lock:
            histogram = self._known.get(bucket)
            return [] if histogram is None else list(histogram.live)

    def gone(self, bucket: bytes, bounds: Collection[bytes], ts_ms: int) -> list[bytes]:
        """The boundaries that get a stale marker at ts_ms, beside a sample with `bounds`, which are below +Inf.

        bucket: labels of the bucket series without `le`, in any order. Raises Unavailable while announced boundaries
        are read. A sample that is older than another one of its histogram changes nothing.
        """
        with self._lock:
            histogram = self._known.get(bucket)
        if histogram is None:
            histogram = _Histogram(histogram_of(bucket))
        announced: Collection[bytes] = () if self._announced is None else self._announced.of(histogram.key)
        with self._lock:
            histogram = self._known.setdefault(bucket, histogram)
            self._known.move_to_end(bucket)
            if len(self._known) > self._histograms_max:
                self._known.popitem(last=False)
            return _gone(histogram, announced, bounds, ts_ms)


def histogram_of(bucket: bytes) -> int:
    """Number of a histogram: a hash of the labels of its bucket series without `le`, in any order."""
    parts = bucket.split(_SEPARATOR)
    pairs = sorted(zip(parts[::2], parts[1::2], strict=False))
    return xxhash.xxh3_64_intdigest(_SEPARATOR.join(part for pair in pairs for part in pair))


def _gone(histogram: _Histogram, announced: Collection[bytes], bounds: Collection[bytes], ts_ms: int) -> list[bytes]:
    if ts_ms < histogram.newest_ms:
        return []
    live = histogram.live
    if len(announced) != histogram.announced:
        histogram.announced = len(announced)
        for bound in announced:
            live.setdefault(bound, ts_ms)
    histogram.newest_ms = ts_ms
    for bound in bounds:
        live[bound] = ts_ms
    gone = [bound for bound in live if bound not in bounds]
    for bound in gone:
        if ts_ms - live[bound] > MARK_FOR_MS:
            del live[bound]
    return gone
