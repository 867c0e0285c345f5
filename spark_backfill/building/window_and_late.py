"""Window and late: reads the log once, for the base of a window and for the late minutes that end in it.

The records of a window's base include those of its late minutes, so a separate scan would read these twice. Both parts
see what they would see alone, and share the index of the window's head.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tsdb.chunks.batches import part
from tsdb.chunks.late_scan import LateScan
from tsdb.chunks.rebuild import WindowRebuild
from tsdb.codec.records.log_record import DecodedRecords
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.head.head import Applied
from tsdb.head.memory import HeadMemory


class WindowAndLate:
    """A RecordTarget: all records go to `window`, those of [late_first, late_end) also to `scan`, which has the head of
    `window`."""

    def __init__(self, window: WindowRebuild, scan: LateScan, late_first: int, late_end: int) -> None:
        self._window = window
        self._scan = scan
        self._late = np.array([late_first, late_end], np.int64)

    @property
    def memory(self) -> HeadMemory:
        """Memory of the head that both share."""
        return self._window.memory

    def register(self, records: DecodedAnnouncements, values: bytes, broker_ms: NDArray[np.int64]) -> None:
        """Register announced series, once for both."""
        self._window.register(records, values, broker_ms)

    def unknown_ids(self, records: DecodedRecords) -> NDArray[np.uint64]:
        """Implements Head.unknown_ids for the head that both share."""
        return self._window.unknown_ids(records)

    def apply(self, records: DecodedRecords, offsets: NDArray[np.int64], broker_ms: NDArray[np.int64]) -> Applied:
        """Take records. The scan is first: the window's head may forget series after it has applied them."""
        first, end = np.searchsorted(offsets, self._late).tolist()
        if first < end:
            self._scan.apply(part(records, first, end), offsets[first:end], broker_ms[first:end])
        return self._window.apply(records, offsets, broker_ms)
