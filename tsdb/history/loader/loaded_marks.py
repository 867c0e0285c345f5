"""Loaded marks: decide when `loaded` may be written for partitions that start from zero.

From zero, a progress marker proves nothing before the ends that `chunks` and `series` had at the start. Compaction may
have removed a chunk or an announcement before the marker, because a later record repeats it. So markers up to these
ends are finished without a write. The highest is kept, and written once everything up to the ends is in history and
committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tsdb.codec.chunk.marker import HoleRecord, ProgressMarker
from tsdb.history.interface import ChunkSink, Loaded, OnDone
from tsdb.history.loader.raises import Raises
from tsdb.log.interface import CHUNKS, SERIES
from tsdb.model.errors import TsdbError
from tsdb.ops.logs import get_logger
from tsdb.parallel_consumer import PartitionStatus, TopicPartition

log = get_logger(__name__)


@dataclass(slots=True)
class _FromZero:
    """One partition that is being loaded from zero. end, series_end: high watermarks at the start. begun_at: monotonic
    seconds. holes: not written yet. marker: the highest marker kept back."""

    end: int
    series_end: int
    begun_at: float
    holes: list[HoleRecord] = field(default_factory=list)
    marker: ProgressMarker | None = None
    writing: bool = False


class LoadedMarks:
    """Thread-safe. `write_due` is called repeatedly, from one thread that may wait for history."""

    def __init__(self, store: ChunkSink, raises: Raises) -> None:
        self._store = store
        self._raises = raises
        self._lock = threading.Lock()  # Guards _from_zero.
        self._from_zero: dict[int, _FromZero] = {}

    def begin(
        self,
        ends: Mapping[int, int],
        holes: Mapping[int, Sequence[HoleRecord]],
        begun_at: float,
        series_ends: Mapping[int, int] | None = None,
    ) -> None:
        """Start these partitions from zero. ends, series_ends: one past the last record of `chunks` and `series` now.
        holes: losses that the load from zero cannot fill."""
        series = series_ends or {}
        with self._lock:
            for partition, end in ends.items():
                kept = list(holes.get(partition, ()))
                self._from_zero[partition] = _FromZero(end, series.get(partition, 0), begun_at, kept)

    def load(self, partition: int, offset: int, marker: ProgressMarker, on_done: OnDone) -> bool:
        """Raise `loaded` to a marker. False: the marker is kept back, and on_done is not called."""
        if self._keep_back(partition, offset, marker):
            return False
        self._raises.add(loaded_of(partition, marker), on_done)
        return True

    def from_zero(self, partition: int) -> bool:
        """Whether a partition has not yet reached the end that it had at its start from zero."""
        with self._lock:
            return partition in self._from_zero

    def write_due(self, partitions: Mapping[TopicPartition, PartitionStatus], at: float) -> None:
        """Write holes, kept markers that are proven by now, and other due raises of `loaded`. partitions: the
        consumer's status at `at`, monotonic seconds."""
        due: list[Callable[[], None]] = []
        with self._lock:
            for number, way in list(self._from_zero.items()):
                if way.writing:
                    continue
                if way.holes:
                    way.writing = True
                    due.append(partial(self._write_hole, number, way, way.holes[-1]))
                elif not _is_true(number, way, partitions, at):
                    continue
                elif way.marker is None:
                    del self._from_zero[number]
                else:
                    way.writing = True
                    loaded = loaded_of(number, way.marker)
                    due.append(partial(self._raises.add, loaded, partial(self._written, number, way)))
        for begin in due:
            begin()
        self._raises.write_all()

    def _keep_back(self, partition: int, offset: int, marker: ProgressMarker) -> bool:
        with self._lock:
            way = self._from_zero.get(partition)
            if way is None:
                return False
            proves = offset >= way.end and marker.series_end_offset >= way.series_end
            if proves and not way.holes:
                return False
            if way.marker is None or way.marker.position <= marker.position:
                way.marker = marker
            return True

    def _write_hole(self, number: int, way: _FromZero, hole: HoleRecord) -> None:
        on_done = partial(self._hole_written, number, way)
        try:
            self._store.write_hole(hole, on_done)
        except TsdbError as error:
            on_done(error)

    def _hole_written(self, number: int, way: _FromZero, error: TsdbError | None) -> None:
        with self._lock:
            way.writing = False
            if error is None:
                way.holes.pop()
        _warn("hole", number, error)

    def _written(self, number: int, way: _FromZero, error: TsdbError | None) -> None:
        with self._lock:
            way.writing = False
            if error is None and self._from_zero.get(number) is way:
                del self._from_zero[number]
        _warn("loaded", number, error)


def _warn(what: str, number: int, error: TsdbError | None) -> None:
    if error is not None:
        log.warning(f"{what} not written; trying again", partition=number, reason=error.reason, error=error.message)


def loaded_of(partition: int, marker: ProgressMarker) -> Loaded:
    """The value of `loaded` once everything before the marker is in history."""
    return Loaded(marker.topic_id, partition, marker.position, marker.emitted_through_ms)


def _is_true(number: int, way: _FromZero, partitions: Mapping[TopicPartition, PartitionStatus], at: float) -> bool:
    chunks, series = partitions.get((CHUNKS, number)), partitions.get((SERIES, number))
    # A status from before the start belongs to the previous load.
    if at <= way.begun_at or chunks is None or series is None:
        return False
    if way.end > 0 and (chunks.committed is None or chunks.committed < way.end):
        return False
    return series.position >= max(way.series_end, 0 if way.marker is None else way.marker.series_end_offset)
