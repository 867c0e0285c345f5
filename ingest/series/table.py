"""Series table: finds the announced series of a gateway by the hashes of their labels, in bounded memory, without
labels.

A series is here from its acknowledged announcement on. 2/3 of the memory are rows of 48 bytes, 1/3 is a set with the
announcements of series that have no row, 16 bytes each: together the announcements of twice as many series as rows.
Rows grow page by page, so growing never stops the gateway. When all rows are taken, a new series replaces another one
only now and then, unless that one is no longer announced: a working set larger than the table then costs by its share
of misses. A miss costs no announcement while the set has one.

Thread-safe: one lock, held for a kernel over BLOCK rows at most.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ingest.rows import ResolvedSeries
from ingest.series.table_kernels import (
    BUCKET,
    CONFLICT,
    ENTRY_WORDS,
    FORGOTTEN,
    PAGE_ROWS,
    PAGES,
    REPLACED,
    ROOTS,
    ROWS,
    STATE,
    WORDS,
    announce_kernel,
    find_kernel,
    postpone_kernel,
    recall_kernel,
)
from tsdb.ops.metrics import counter, gauge

BLOCK = 4096
PAGE_BYTES = 8 * PAGE_ROWS * WORDS
BUCKET_BYTES = 8 * BUCKET * ENTRY_WORDS

_rows = gauge("tsdb_ingest_series_cached", "Series in the series table.")
_bytes = gauge("tsdb_ingest_series_table_bytes", "Bytes of the series table's rows in use and of its directory.")
_misses = counter("tsdb_ingest_series_cache_misses_total", "Look-ups of label sets that were not in the series table.")
_replaced = counter(
    "tsdb_ingest_series_cache_evictions_total", "Series replaced by another one because the series table was full."
)
_forgotten = counter(
    "tsdb_ingest_announcements_forgotten_total",
    "Announcements still in force that were forgotten because the series table was full: each is made once more.",
)


class SeriesTable:
    """bytes_max: memory of rows and announcements, at least one page and one bucket. entropy: returns n random bytes,
    so that a sender cannot choose series that share a page."""

    def __init__(self, bytes_max: int, window_ms: int, *, entropy: Callable[[int], bytes] = os.urandom) -> None:
        set_bytes = bytes_max // 3
        pages = max(ROOTS, (bytes_max - set_bytes) // PAGE_BYTES)
        buckets = max(1, set_bytes // BUCKET_BYTES)
        self._window_ms = window_ms
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        # Pages of the operating system that no row has used take no memory.
        self._pages = np.zeros(pages * PAGE_ROWS * WORDS, np.uint64)
        self._entries = np.zeros(buckets * BUCKET * ENTRY_WORDS, np.uint64)
        self._page_rows, self._page_depth = np.zeros(pages, np.int64), np.zeros(pages, np.int64)
        self._state = np.zeros(STATE, np.int64)
        self._state[PAGES] = ROOTS
        self._directory = np.arange(ROOTS, dtype=np.int32)
        self._depth = 0
        self._random = np.array([int.from_bytes(entropy(8), "little") | 1], np.uint64)
        self._factor = np.uint64(int.from_bytes(entropy(8), "little") | 1)

    def __len__(self) -> int:
        with self._lock:
            return int(self._state[ROWS])

    @property
    def nbytes(self) -> int:
        """Bytes of the pages in use and of the directory; the set of announcements is not counted."""
        with self._lock:
            return self._nbytes_locked()

    def find(self, series: ResolvedSeries) -> NDArray[np.bool_]:
        """Fill the rows with both hashes in the table; bool (n,) tells which."""
        count = len(series.series_id)
        found, hits = np.empty(count, np.bool_), 0
        for first in range(0, count, BLOCK):
            with self._lock:
                hits += find_kernel(
                    self._pages,
                    self._directory,
                    self._depth,
                    self._factor,
                    self._window_ms,
                    series.series_id,
                    series.check,
                    first,
                    min(first + BLOCK, count),
                    found,
                    series.pack_id,
                    series.partition,
                    series.known,
                )
        if hits < count:
            _misses.inc(count - hits)
        return found

    def recall(self, series: ResolvedSeries, now_ms: int) -> NDArray[np.bool_]:
        """Fill `known` for series that `find` did not find: from the table, by canonical labels, or from the set.

        bool (n,): series with the id of another series in the table.

        """
        status = np.empty(len(series.series_id), np.uint8)
        for first in range(0, len(status), BLOCK):
            part = slice(first, first + BLOCK)
            self._change(
                recall_kernel,
                now_ms,
                series.series_id[part],
                series.check[part],
                series.pack_id[part],
                series.partition[part],
                self._window_ms,
                status[part],
                series.known[part],
            )
        conflict: NDArray[np.bool_] = status == CONFLICT
        return conflict

    def set_known(self, series: ResolvedSeries, epochs: NDArray[np.int64], known_until_ms: int, now_ms: int) -> None:
        """Record that each of `series` is announced for its epoch, int64 (n,).

        The late answer of an older announcement never shortens a newer one of the same epoch.
        """
        for first in range(0, len(epochs), BLOCK):
            part = slice(first, first + BLOCK)
            self._change(
                announce_kernel,
                now_ms,
                series.series_id[part],
                series.check[part],
                series.pack_id[part],
                series.partition[part],
                epochs[part],
                known_until_ms,
            )

    def postpone_renewal(self, series: ResolvedSeries, retry_at_ms: int) -> None:
        """Record that these series are being announced again: no other request does so before retry_at_ms."""
        with self._lock:
            postpone_kernel(
                self._pages,
                self._directory,
                self._depth,
                self._factor,
                series.series_id,
                series.check,
                retry_at_ms,
            )

    def _change(self, change: Callable[..., int], now_ms: int, series_id: NDArray[np.uint64], *rest: object) -> None:
        """Run a kernel over all series, and double the directory wherever it stops."""
        with self._lock:
            done = 0
            while (done := self._run_locked(change, now_ms, done, series_id, *rest)) < len(series_id):
                # The copy has 4 bytes for each entry of the directory: 1 ms for 10 million series.
                self._directory = np.repeat(self._directory, 2)
                self._depth += 1
            self._count_locked()

    def _run_locked(self, change: Callable[..., int], now_ms: int, first: int, *rest: object) -> int:
        return change(
            self._pages,
            self._directory,
            self._depth,
            self._page_rows,
            self._page_depth,
            self._entries,
            self._state,
            self._random,
            self._factor,
            now_ms,
            first,
            *rest,
        )

    def _count_locked(self) -> None:
        _replaced.inc(int(self._state[REPLACED]))
        _forgotten.inc(int(self._state[FORGOTTEN]))
        self._state[REPLACED] = self._state[FORGOTTEN] = 0
        _rows.set(int(self._state[ROWS]))
        _bytes.set(self._nbytes_locked())

    def _nbytes_locked(self) -> int:
        return int(self._state[PAGES]) * PAGE_BYTES + self._directory.nbytes
