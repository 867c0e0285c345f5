"""History parts: caches history's series index by (index epoch, metric name), and checks the validity of each part.

A part has every series with a sample below the loaded positions that were read before the part. So it is valid while
memory begins at or below them, also when the loader goes on. Series of imports and downsampling reach history without
passing through the log, so a part is valid only within one generation of the index (tsdb.log.index_generation).
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tsdb.codec.records.record_status import STATUS_OK
from tsdb.codec.records.series_record import DecodedAnnouncements
from tsdb.history.interface import Loaded, SeriesIndexRows
from tsdb.index.index import SeriesIndex
from tsdb.model.errors import CorruptData
from tsdb.ops.metrics import gauge

SERIES_KEPT_MAX = 1_000_000  # A series takes a few hundred bytes.
EPOCHS_KEPT_MAX = 2_000  # Epochs whose metric names are cached. A range may touch epochs without series.

kept_series = gauge("tsdb_query_past_index_series", "Series of history's index cached in memory; one per epoch.")

Needs = Mapping[int, int]
"""since_offset of each partition of an answer: the index must be complete below it."""


@dataclass(frozen=True, slots=True)
class HistoryVersion:
    """Loaded positions and generation of history, both read before its index. generation: None while it is unknown."""

    loaded: Mapping[int, Loaded]
    generation: int | None

    def serves(self, now: HistoryVersion, needs: Needs) -> bool:
        """Whether an index read at this version is complete for an answer at version `now`."""
        if self.generation is None or self.generation != now.generation:
            return False
        return all(
            partition in self.loaded and self.loaded[partition].position >= since for partition, since in needs.items()
        )


@dataclass(frozen=True, slots=True)
class EpochNames:
    """Metric names of one epoch."""

    version: HistoryVersion
    names: list[bytes]


@dataclass(frozen=True, slots=True)
class IndexPart:
    """Series of one (epoch, name). pack_id, partition: arrays by ref of `index`."""

    version: HistoryVersion
    index: SeriesIndex
    pack_id: NDArray[np.uint64]
    partition: NDArray[np.int32]

    @classmethod
    def of(cls, rows: SeriesIndexRows, version: HistoryVersion) -> IndexPart:
        """Raises CorruptData (corrupt_row) for labels that are not canonical."""
        index = _index_of(rows)
        refs = index.table.find(rows.series_id)
        pack_id, partition = np.empty(len(refs), np.uint64), np.empty(len(refs), np.int32)
        pack_id[refs], partition[refs] = rows.pack_id, rows.partition
        return cls(version, index, pack_id, partition)


class HistoryParts:
    """The most recently used parts and names, bounded by series and epochs. Thread-safe."""

    def __init__(self, series_kept_max: int = SERIES_KEPT_MAX) -> None:
        self._series_kept_max = series_kept_max
        self._lock = threading.Lock()  # Guards all below; an innermost lock.
        self._names: OrderedDict[int, EpochNames] = OrderedDict()
        self._parts: OrderedDict[tuple[int, bytes], IndexPart] = OrderedDict()
        self._kept = 0

    def names(self, epoch: int, now: HistoryVersion, needs: Needs) -> list[bytes] | None:
        """The cached metric names; None: not cached or no longer valid."""
        with self._lock:
            known = self._names.get(epoch)
            if known is None or not known.version.serves(now, needs):
                return None
            self._names.move_to_end(epoch)
            return known.names

    def part(self, epoch: int, name: bytes, now: HistoryVersion, needs: Needs) -> IndexPart | None:
        """The cached part; None: not cached or no longer valid."""
        key = epoch, name
        with self._lock:
            known = self._parts.get(key)
            if known is None or not known.version.serves(now, needs):
                return None
            self._parts.move_to_end(key)
            return known

    def keep_names(self, epoch: int, names: EpochNames) -> None:
        """Replace the names of the epoch."""
        with self._lock:
            self._names[epoch] = names
            self._names.move_to_end(epoch)
            while len(self._names) > EPOCHS_KEPT_MAX:
                self._names.popitem(last=False)

    def keep_part(self, epoch: int, name: bytes, part: IndexPart) -> None:
        """Replace the part of the epoch and name."""
        key = epoch, name
        with self._lock:
            before = self._parts.pop(key, None)
            self._kept += part.index.series - (before.index.series if before else 0)
            self._parts[key] = part
            while self._kept > self._series_kept_max and len(self._parts) > 1:
                _, oldest = self._parts.popitem(last=False)
                self._kept -= oldest.index.series
            kept_series.set(self._kept)


def _index_of(rows: SeriesIndexRows) -> SeriesIndex:
    index = SeriesIndex()
    ends = np.cumsum([0, *map(len, rows.labels)], dtype=np.int64)
    records = DecodedAnnouncements(
        status=np.full(len(rows.labels), STATUS_OK, np.uint8),
        series_id=rows.series_id,
        epoch=np.zeros(len(rows.labels), np.int32),
        pack_id=rows.pack_id,
        label_start=ends[:-1],
        label_end=ends[1:],
    )
    done = index.register(records, b"".join(rows.labels), np.zeros(len(rows.labels), np.int64))
    if done.new != len(rows.labels):
        raise CorruptData(
            f"{len(rows.labels) - done.new} of {len(rows.labels)} series of history have labels that are not canonical",
            reason="corrupt_row",
        )
    return index
