"""Loaded marks: what may be said to be loaded of partitions that start from zero, and when.

From zero a progress marker proves nothing before the end that the topic had at the start: compaction may have removed a
chunk that the marker counts on because a later record repeats it. So markers up to there are finished without being
written, the highest is kept, and it is written once everything up to that end is in history and committed.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from tsdb.codec.chunk_marker import ProgressMarker
from tsdb.history.interface import ChunkSink, Loaded
from tsdb.log.interface import CHUNKS, SERIES
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.parallel_consumer import Partition, PartitionStatus

log = get_logger(__name__)


@dataclass(slots=True)
class _FromZero:
    """One partition on its way from zero. end: the high watermark at the start. marker: the highest below it."""

    end: int
    marker: ProgressMarker | None = None
    writing: bool = False


class LoadedMarks:
    """Thread-safe. `write_due` is called again and again, from any thread."""

    def __init__(self, store: ChunkSink) -> None:
        self._store = store
        self._lock = threading.Lock()  # Guards _from_zero.
        self._from_zero: dict[int, _FromZero] = {}

    def begin(self, ends: Mapping[int, int]) -> None:
        """These partitions start from zero; ends: one past the last record of `chunks` now."""
        with self._lock:
            self._from_zero.update({partition: _FromZero(end) for partition, end in ends.items()})

    def keep_back(self, partition: int, offset: int, marker: ProgressMarker) -> bool:
        """Whether this marker must not be written now; it is remembered then."""
        with self._lock:
            way = self._from_zero.get(partition)
            if way is None or offset >= way.end:
                return False
            if way.marker is None or way.marker.position <= marker.position:
                way.marker = marker
            return True

    def from_zero(self, partition: int) -> bool:
        """Whether a partition has not yet come to the end that it had at the start."""
        with self._lock:
            return partition in self._from_zero

    def write_due(self, partitions: Mapping[Partition, PartitionStatus]) -> None:
        """Write what was kept back and is true by now. partitions: as the consumer shows them."""
        with self._lock:
            due = [(number, way) for number, way in self._from_zero.items() if _is_true(number, way, partitions)]
            for number, way in due:
                if way.marker is None:
                    del self._from_zero[number]
                else:
                    way.writing = True
        self._write((number, way, way.marker) for number, way in due if way.marker is not None)

    def _write(self, due: Iterable[tuple[int, _FromZero, ProgressMarker]]) -> None:
        for number, way, marker in due:

            def on_done(error: TsdbError | None, number: int = number, way: _FromZero = way) -> None:
                self._written(number, way, error)

            try:
                self._store.write_loaded(loaded_of(number, marker), on_done)
            except TsdbError as error:
                self._written(number, way, error)

    def _written(self, number: int, way: _FromZero, error: TsdbError | None) -> None:
        with self._lock:
            way.writing = False
            if error is None and self._from_zero.get(number) is way:
                del self._from_zero[number]
        if error is not None:
            log.warning("loaded not written; trying again", partition=number, reason=error.reason, error=error.message)


def loaded_of(partition: int, marker: ProgressMarker) -> Loaded:
    """What history holds once everything before the marker is in it."""
    return Loaded(marker.topic_id, partition, marker.position, marker.emitted_through_ms)


def _is_true(number: int, way: _FromZero, partitions: Mapping[Partition, PartitionStatus]) -> bool:
    chunks, series = partitions.get((CHUNKS, number)), partitions.get((SERIES, number))
    if way.writing or chunks is None or series is None:
        return False
    if way.end > 0 and (chunks.committed is None or chunks.committed < way.end):
        return False
    return way.marker is None or series.position >= way.marker.series_end_offset
