"""Keeps the exemplars of one head: the last ones of each series, and in all no more bytes than a limit.

They come in the order of the log. Each series keeps its newest ones, and above the limit of bytes the oldest of all
series go. The writer thread adds; any thread reads. New exemplars wait in a list until enough of them are sorted into
the others, so that each costs 0.4 us; a read sorts those of its series.

A series is named by its id and not by its ref: refs are used again, and exemplars of a series that was forgotten are
only found when the series comes back.
"""

from __future__ import annotations

import threading
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.exemplar_record import Exemplars, joined_exemplars
from tsdb.head.exemplars_kernels import COUNTS, DUPLICATE, OUT_OF_ORDER, REPLACED, chosen_kernel
from tsdb.model.arrays import joined_ranges
from tsdb.ops.metrics import counter

WAITING_MIN = 4096  # Exemplars that wait before they are sorted without a read.

_ended = counter(
    "tsdb_head_exemplars_ended_total",
    "Exemplars of the log that memory does not keep, by reason. duplicate: equals the newest of its series; "
    "out_of_order: older than that; replaced: newer ones of its series came; evicted: newer ones of other series came; "
    "unknown_series: its series is not known.",
    "reason",
    ("duplicate", "out_of_order", "replaced", "evicted", "unknown_series"),
)


class ExemplarsImage(NamedTuple):
    """All exemplars of a head at one moment, by series and then by arrival."""

    series_id: NDArray[np.uint64]
    ts_ms: NDArray[np.int64]
    values: NDArray[np.float64]
    arrival: NDArray[np.int64]
    labels: NDArray[np.uint8]
    label_starts: NDArray[np.int64]


def count_unknown(exemplars: int) -> None:
    """Count exemplars of series that are not known."""
    _ended.labels("unknown_series").inc(exemplars)


class HeadExemplars:
    """series_max: exemplars of a series. bytes_max: bytes of all exemplars; with 0 nothing is kept."""

    def __init__(self, series_max: int, bytes_max: int) -> None:
        self._series_max = series_max
        self._bytes_max = bytes_max
        self._lock = threading.Lock()  # Guards all below.
        self._kept = joined_exemplars(())  # Sorted by series, then by arrival.
        self._arrival = np.empty(0, np.int64)
        self._waiting: list[Exemplars] = []
        self._waiting_count = 0
        self._waiting_bytes = 0
        self._arrived = 0

    @property
    def enabled(self) -> bool:
        return self._bytes_max > 0

    @property
    def bytes(self) -> int:
        """Memory of the exemplars."""
        return _nbytes(self._kept) + self._waiting_bytes

    @property
    def count(self) -> int:
        """Exemplars in memory, those that wait included."""
        return len(self._kept) + self._waiting_count

    def add(self, exemplars: Exemplars) -> None:
        """Add exemplars in the order of the log. The writer thread calls it."""
        with self._lock:
            self._waiting.append(exemplars)
            self._waiting_count += len(exemplars)
            self._waiting_bytes += _nbytes(exemplars)
            enough = self._waiting_count >= max(WAITING_MIN, len(self._kept))
            if enough or self.bytes > self._bytes_max:
                self._sort_locked()

    def of(self, series_ids: NDArray[np.uint64], start_ms: int, end_ms: int) -> Exemplars:
        """The exemplars of these series with a time in [start_ms, end_ms), by series id and then by arrival."""
        with self._lock:
            kept, waiting = self._kept, list(self._waiting)
        wanted = np.unique(series_ids)
        # The rules of a series need no other series, so what waits is sorted into these alone.
        found = joined_exemplars([_of_sorted(kept, wanted), *(_of_any(one, wanted) for one in waiting)])
        if waiting:
            found = found.take(self._chosen(found, np.zeros(COUNTS, np.int64)))
        return found.take(np.flatnonzero((found.ts_ms >= start_ms) & (found.ts_ms < end_ms)))

    def image(self) -> ExemplarsImage | None:
        """An image of all exemplars now; None without any. The arrays never change."""
        with self._lock:
            self._sort_locked()
            kept = self._kept
            if not len(kept):
                return None
            return ExemplarsImage(
                kept.series_id, kept.ts_ms, kept.values, self._arrival, kept.labels, kept.label_starts
            )

    def restore(self, image: ExemplarsImage) -> None:
        """Restore an image, before the first exemplar."""
        if not self.enabled:
            return
        with self._lock:
            assert not self.count, "only an empty head can be restored"
            self._kept = Exemplars(image.series_id, image.ts_ms, image.values, image.labels, image.label_starts)
            self._arrival = image.arrival
            self._arrived = int(image.arrival.max(initial=-1)) + 1

    def _sort_locked(self) -> None:
        if not self._waiting:
            return
        every = joined_exemplars([self._kept, *self._waiting])
        arrival = np.concatenate([self._arrival, np.arange(self._arrived, self._arrived + self._waiting_count)])
        self._arrived += self._waiting_count
        self._waiting, self._waiting_count, self._waiting_bytes = [], 0, 0
        counts = np.zeros(COUNTS, np.int64)
        chosen = self._chosen(every, counts)
        which = self._within_bytes(every, arrival, chosen)
        self._kept, self._arrival = every.take(which), arrival[which]
        for reason, number in (("duplicate", DUPLICATE), ("out_of_order", OUT_OF_ORDER), ("replaced", REPLACED)):
            _ended.labels(reason).inc(int(counts[number]))
        _ended.labels("evicted").inc(len(chosen) - len(which))

    def _chosen(self, every: Exemplars, counts: NDArray[np.int64]) -> NDArray[np.int64]:
        """Indices of the exemplars that stay by the rules of each series, by series id and then by arrival. counts: the
        number of the others by reason."""
        chosen = np.empty(len(every), np.int64)
        stay = chosen_kernel(
            np.argsort(every.series_id, kind="stable"),
            every.series_id,
            every.ts_ms,
            every.values,
            every.labels,
            every.label_starts,
            self._series_max,
            counts,
            chosen,
        )
        return chosen[:stay]

    def _within_bytes(
        self, every: Exemplars, arrival: NDArray[np.int64], chosen: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """`chosen` without the oldest ones, so that the rest is within three quarters of the limit when all of them
        are above it: to evict one by one would sort all of them for each record."""
        sizes = ROW_BYTES + every.label_starts[1:][chosen] - every.label_starts[:-1][chosen]
        if int(sizes.sum()) <= self._bytes_max:
            return chosen
        newest_first = np.argsort(-arrival[chosen], kind="stable")
        fits = np.cumsum(sizes[newest_first]) <= self._bytes_max // 4 * 3
        return chosen[np.sort(newest_first[fits])]


ROW_BYTES = 40  # Bytes of an exemplar beside its labels: id, time, value, arrival, start of the labels.


def _of_sorted(exemplars: Exemplars, wanted: NDArray[np.uint64]) -> Exemplars:
    """Exemplars of some series. exemplars: sorted by series id. wanted: ascending."""
    first = np.searchsorted(exemplars.series_id, wanted)
    counts = np.searchsorted(exemplars.series_id, wanted, side="right") - first
    return exemplars.take(joined_ranges(first, counts))


def _of_any(exemplars: Exemplars, wanted: NDArray[np.uint64]) -> Exemplars:
    """Exemplars of some series. exemplars: in any order of series."""
    return exemplars.take(np.flatnonzero(np.isin(exemplars.series_id, wanted)))


def _nbytes(exemplars: Exemplars) -> int:
    return ROW_BYTES * len(exemplars) + len(exemplars.labels)
